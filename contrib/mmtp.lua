-- Wireshark's and tshark's dissector of mmTP, version 1 (docs/wire-mmtp.md).
--
--   tshark -X lua_script:contrib/mmtp.lua -i lo -f 'udp port 26227'
--   cp contrib/mmtp.lua ~/.local/lib/wireshark/plugins/          and Wireshark has it, too
--
-- It takes UDP port 26227; for other ports: `-d udp.port==4000,mmtp`, or "Decode As" in Wireshark. Filters are such as
-- `mmtp.type == 2`, `mmtp.chunk > 1000`, `mmtp.tag == 0x0102030405060708`. What is malformed is a warning of its packet.

local mmtp = Proto("mmtp", "Multipath multisource transport protocol")

local TYPES = {
    [1] = "REQUEST", [2] = "DATA", [3] = "HASHES", [4] = "META", [5] = "COOKIE", [6] = "REFUSE", [7] = "PROBE", [8] = "PADDED",
}
local EXTENSIONS = {
    [0] = "PADDING", [1] = "COOKIE", [2] = "FORWARDING IDENTIFIER", [3] = "GROUP ID", [5] = "CONTENT", [6] = "TIMESTAMP",
}
local KINDS = { [0] = "data", [1] = "meta", [2] = "hashes" }
local REASONS = { [1] = "unknown content", [2] = "bad request", [3] = "content changed", [4] = "busy", [5] = "version" }
local CONTENTS = { [0] = "file", [1] = "collection" }

local f = {
    version = ProtoField.uint8("mmtp.version", "Version"),
    type = ProtoField.uint8("mmtp.type", "Type", base.DEC, TYPES),
    flags = ProtoField.uint8("mmtp.flags", "Flags", base.HEX),
    ect = ProtoField.bool("mmtp.flags.ect", "Send the DATA with ECT(0)", 8, nil, 0x01),
    no_cache = ProtoField.bool("mmtp.flags.no_cache", "No cache is to answer", 8, nil, 0x02),
    cached = ProtoField.bool("mmtp.flags.cached", "A cache has sent this", 8, nil, 0x01),
    words = ProtoField.uint8("mmtp.extension_words", "Words of extensions"),
    tag = ProtoField.uint64("mmtp.tag", "Tag", base.HEX),
    extension = ProtoField.uint8("mmtp.extension", "Extension", base.DEC, EXTENSIONS),
    cookie = ProtoField.bytes("mmtp.cookie", "Cookie"),
    root = ProtoField.bytes("mmtp.root", "Root"),
    length = ProtoField.uint64("mmtp.length", "Length of the content"),
    ranges = ProtoField.uint8("mmtp.ranges", "Ranges"),
    kind = ProtoField.uint8("mmtp.range.kind", "Kind", base.DEC, KINDS),
    cut = ProtoField.uint8("mmtp.cut", "Cut"),
    level = ProtoField.uint8("mmtp.level", "Level"),
    count = ProtoField.uint16("mmtp.range.count", "Count"),
    first = ProtoField.uint64("mmtp.first", "First"),
    chunk = ProtoField.uint64("mmtp.chunk", "Chunk"),
    node = ProtoField.uint16("mmtp.node", "Node of the cache"),
    payload = ProtoField.bytes("mmtp.payload", "Payload"),
    value = ProtoField.bytes("mmtp.value", "Chaining value"),
    block_bytes = ProtoField.uint32("mmtp.block_bytes", "Bytes of a block"),
    blocks = ProtoField.uint64("mmtp.blocks", "Blocks"),
    content_kind = ProtoField.uint8("mmtp.content_kind", "Kind of content", base.DEC, CONTENTS),
    name = ProtoField.string("mmtp.name", "Name"),
    reason = ProtoField.uint8("mmtp.reason", "Reason", base.DEC, REASONS),
    speaks = ProtoField.uint8("mmtp.speaks", "Version of the source"),
    retry = ProtoField.uint16("mmtp.retry_ms", "Retry after (ms)"),
    size = ProtoField.uint16("mmtp.size", "Size"),
    padding = ProtoField.bytes("mmtp.padding", "Padding"),
}
mmtp.fields = f

local malformed = ProtoExpert.new("mmtp.malformed", "Malformed", expert.group.MALFORMED, expert.severity.WARN)
mmtp.experts = { malformed }

--- Reads fields one after the other. `take` returns nil, and marks the packet, when the bytes do not suffice.
local Reader = {}
Reader.__index = Reader

function Reader:left()
    return self.buffer:len() - self.at
end

function Reader:take(length)
    if self:left() < length or length == 0 then
        if length > 0 and not self.is_short then
            self.is_short = true
            self.tree:add_proto_expert_info(malformed, "truncated: shorter than its fields say")
        end
        return nil
    end
    local range = self.buffer(self.at, length)
    self.at = self.at + length
    return range
end

function Reader:add(field, length, tree)
    local range = self:take(length)
    if range then
        (tree or self.tree):add(field, range)
    end
    return range
end

local function extensions(reader, words)
    local stop = reader.at + 4 * words
    while reader.at < stop do
        local own = reader.buffer(reader.at, 2)
        local length = 4 * own(1, 1):uint()
        if length == 0 or reader.at + length > stop then
            reader.tree:add_proto_expert_info(malformed, "bad-extension: it does not fit into its area")
            return false
        end
        local item = reader.tree:add(f.extension, own(0, 1))
        item:set_len(length)
        if own(0, 1):uint() == 1 and length == 20 then
            item:add(f.cookie, reader.buffer(reader.at + 4, 16))
        end
        reader.at = reader.at + length
    end
    return true
end

--- Reads the seven bytes of a number, of which a cache uses two for its node.
local function number(reader, field, flags)
    if flags % 2 == 1 then
        reader:add(f.node, 2)
        return reader:add(field, 5)
    end
    return reader:add(field, 7)
end

local BODIES = {}

BODIES[1] = function(reader)
    reader:add(f.root, 32)
    local length = reader:add(f.length, 8)
    local count = reader:add(f.ranges, 1)
    reader:take(3)
    local words = {}
    for _ = 1, count and count:uint() or 0 do
        local range = reader:take(12)
        if not range then
            return ""
        end
        local kind = range(0, 1):uint()
        local item = reader.tree:add(f.kind, range(0, 1))
        item:set_len(12)
        if kind == 0 then
            item:add(f.cut, range(1, 1))
        elseif kind == 2 then
            item:add(f.level, range(1, 1))
        end
        item:add(f.count, range(2, 2))
        item:add(f.first, range(4, 8))
        words[#words + 1] = kind == 1 and "meta"
            or string.format("%s %s+%d", KINDS[kind] or "?", range(4, 8):uint64():tonumber(), range(2, 2):uint())
    end
    if reader:left() > 0 then
        reader:add(f.padding, reader:left())
    end
    return length and string.format("of %.0f bytes: %s", length:uint64():tonumber(), table.concat(words, ", ")) or ""
end

BODIES[2] = function(reader, flags)
    reader:add(f.cut, 1)
    local chunk = number(reader, f.chunk, flags)
    local bytes = reader:left()
    reader:add(f.payload, math.max(bytes, 1))
    return chunk and string.format("chunk %.0f, %d bytes", chunk:uint64():tonumber(), bytes) or ""
end

BODIES[3] = function(reader, flags)
    local level = reader:add(f.level, 1)
    local first = number(reader, f.first, flags)
    local count = 0
    repeat
        count = count + 1
    until not reader:add(f.value, 32) or reader:left() == 0
    return first and string.format("level %d, %d from %.0f on", level:uint(), count, first:uint64():tonumber()) or ""
end

BODIES[4] = function(reader)
    local length = reader:add(f.length, 8)
    reader:add(f.root, 32)
    reader:add(f.block_bytes, 4)
    reader:add(f.blocks, 8)
    reader:add(f.content_kind, 1)
    local name = reader:take(2)
    if name and name:uint() > 0 then
        reader:add(f.name, name:uint())
    end
    return length and string.format("%.0f bytes", length:uint64():tonumber()) or ""
end

BODIES[5] = function(reader)
    reader:add(f.cookie, 16)
    return ""
end

BODIES[6] = function(reader)
    local reason = reader:add(f.reason, 1)
    reader:add(f.speaks, 1)
    reader:add(f.retry, 2)
    return reason and (REASONS[reason:uint()] or "?") or ""
end

BODIES[7] = function(reader)
    local size = reader:add(f.size, 2)
    return size and string.format("for %d bytes", size:uint()) or ""
end

BODIES[8] = BODIES[7]

function mmtp.dissector(buffer, pinfo, root)
    if buffer:len() < 12 then
        return 0
    end
    local version, kind, flags, words = buffer(0, 1):uint(), buffer(1, 1):uint(), buffer(2, 1):uint(), buffer(3, 1):uint()
    pinfo.cols.protocol = "mmTP"
    local tree = root:add(mmtp, buffer(), "mmTP " .. (TYPES[kind] or "of unknown type"))
    tree:add(f.version, buffer(0, 1))
    tree:add(f.type, buffer(1, 1))
    local bits = tree:add(f.flags, buffer(2, 1))
    if kind == 1 then
        bits:add(f.ect, buffer(2, 1))
        bits:add(f.no_cache, buffer(2, 1))
    elseif kind == 2 or kind == 3 then
        bits:add(f.cached, buffer(2, 1))
    end
    tree:add(f.words, buffer(3, 1))
    tree:add(f.tag, buffer(4, 8))
    pinfo.cols.info = TYPES[kind] or string.format("type %d", kind)
    if version ~= 1 or not BODIES[kind] then
        tree:add_proto_expert_info(malformed, version ~= 1 and "unknown-version" or "unknown-type")
        return buffer:len()
    end
    local reader = setmetatable({ buffer = buffer, at = 12, tree = tree }, Reader)
    if reader:left() < 4 * words then
        tree:add_proto_expert_info(malformed, "truncated: the extensions do not fit")
    elseif extensions(reader, words) then
        local said = BODIES[kind](reader, flags)
        if said ~= "" then
            pinfo.cols.info:append(" " .. said)
        end
    end
    return buffer:len()
end

DissectorTable.get("udp.port"):add(26227, mmtp)
