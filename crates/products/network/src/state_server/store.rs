//! Keeps the shared state of rendezvous as keys of a Redis or Valkey; docs/wire-overlay.md has the layout.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anabranch_algo::{Span, Time};
use anabranch_overlay::publication::{Name, Scope};
use anabranch_overlay::rendezvous::shared::{Ask, Field, Keep, Query, Told};
use redis::{Cmd, RedisError, ServerErrorKind, Value, cmd};

use super::address::{StateServer, TIMEOUT};
use super::connection::Connection;
use super::failure::Failure;
use anabranch::text::printable;

/// The time for which a table that is too long is not read again. Reading it costs the connection, and with
/// it the answers to all queries of the exchange.
const LEFT_ALONE: Span = Span::from_secs(60);
/// The most tables for which that is remembered.
const LEFT_ALONE_MAX: usize = 1_024;
/// How many keys the server looks at for a part of the list of names, about.
const PART_KEYS: u32 = 32;
/// The version of the layout.
const FORMAT: &str = "1";
/// The life of the key that says which layout the database has.
const FORMAT_KEPT_MS: u64 = 30 * 24 * 3_600_000;

/// The script compares and sets a value. It has no rules of publications: the caller has decided which one is
/// later and whether there is room, from the values that it read, and the script checks that they have not
/// changed.
const SCRIPT: &str = "
-- KEYS: the table of a name. ARGV: field, value, milliseconds, fields at most, 1 if a value is there, that
-- value; then fields and their values that are nothing any more.
for i = 7, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known ~= (ARGV[5] == '1' and ARGV[6]) then return 0 end
if not known and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3], 'NX')
redis.call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
return 1
";

/// The reply to a command.
enum Reply {
    Value(Value),
    /// The key has another type.
    OtherKind,
    /// The server has no room.
    NoRoom,
    /// The server has lost the script.
    NoScript,
    /// The user may not use the command, and the others are of use without it.
    NotAllowed,
}

/// A connection to the server.
pub(super) struct Store {
    connection: Connection,
    prefix: String,
    /// The hash by which the script is called.
    script: Vec<u8>,
    /// The number of exchanges with the server so far.
    pub(super) round_trips: u64,
}

/// The keys of tables that were too long to be read, and until when each is not read again.
#[derive(Default)]
pub(super) struct LeftAlone(BTreeMap<String, Time>);

impl LeftAlone {
    pub(super) fn note(&mut self, now: Time, key: String) {
        self.0.retain(|_, until| *until > now);
        if self.0.len() < LEFT_ALONE_MAX {
            self.0.insert(key, now + LEFT_ALONE);
        }
    }

    fn has(&self, now: Time, key: &str) -> bool {
        self.0.get(key).is_some_and(|until| *until > now)
    }
}

impl Store {
    /// Connects, and checks that everything that is needed is there.
    pub(super) fn connect(server: &StateServer, domain: &str) -> Result<Self, Failure> {
        let connection = Connection::open(server, TIMEOUT)?;
        let prefix = format!("anabranch:{domain}:");
        let mut store = Self { connection, prefix, script: Vec::new(), round_trips: 0 };
        store.load()?;
        let about = format!("{}about", store.prefix);
        // This writes as later commands do, so that a missing permission to write is found now.
        let mut first = command("HSETNX", &about);
        first.arg("format").arg(FORMAT);
        let mut again = cmd("EVALSHA");
        again.arg(&store.script).arg(1).arg(&about);
        again.arg("format").arg(FORMAT).arg(FORMAT_KEPT_MS).arg(1).arg(1).arg(FORMAT);
        match store.exchange(&[first, again])?.pop() {
            // A server without room may have some later, and can still answer lookups.
            Some(Reply::Value(Value::Int(1)) | Reply::NoRoom) => Ok(store),
            _ => Err(Failure::lasting(format!(
                "was written by another anabranch, or something else ({about} is another): use that one, or \
                 name another database with `state`"
            ))),
        }
    }

    /// Returns the server's kind and version, and what it may lose, as text for people.
    pub(super) fn describe(&mut self) -> Result<String, Failure> {
        // A user who may not ask for this gets no text.
        let replies = self.exchange(&[cmd("INFO")]).unwrap_or_default();
        let Some(Reply::Value(Value::BulkString(info))) = replies.into_iter().next() else {
            return Ok(String::new());
        };
        let info = String::from_utf8_lossy(&info);
        let of = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
                .map(printable)
        };
        let mut text = match (of("valkey_version"), of("redis_version")) {
            (Some(version), _) => format!(" (Valkey {version})"),
            (_, Some(version)) => format!(" (Redis {version})"),
            _ => String::new(),
        };
        if of("cluster_enabled").as_deref() == Some("1") {
            self.check_alone()?;
        }
        if of("aof_enabled").as_deref() == Some("0") {
            text += "; it keeps no journal (appendonly no), so a new start of it may lose publications and \
                     withdrawals";
        }
        if let Some(policy) = of("maxmemory_policy").filter(|policy| policy != "noeviction") {
            let _ =
                write!(text, "; where its memory ends it forgets what it likes (maxmemory-policy {policy})");
        }
        Ok(text)
    }

    /// Checks that the server is not one of several shards. A cluster with one shard has all keys; several
    /// are not supported yet.
    fn check_alone(&mut self) -> Result<(), Failure> {
        let mut command = cmd("CLUSTER");
        command.arg("INFO");
        let Some(Reply::Value(Value::BulkString(info))) = self.exchange(&[command])?.pop() else {
            return Ok(());
        };
        let info = String::from_utf8_lossy(&info);
        let size = info.lines().find_map(|line| line.strip_prefix("cluster_size:"));
        match size.and_then(|size| size.trim().parse::<u32>().ok()) {
            Some(size) if size > 1 => Err(Failure::lasting(format!(
                "is one of {size} shards of a cluster, which `state` cannot use: name a server with all keys"
            ))),
            _ => Ok(()),
        }
    }

    fn load(&mut self) -> Result<(), Failure> {
        let mut command = cmd("SCRIPT");
        command.arg("LOAD").arg(SCRIPT);
        match self.exchange(&[command])?.pop() {
            Some(Reply::Value(Value::BulkString(name))) => self.script = name,
            Some(Reply::Value(Value::SimpleString(name))) => self.script = name.into_bytes(),
            _ => return Err(Failure::lasting("takes no scripts")),
        }
        Ok(())
    }

    /// Checks that the server answers.
    pub(super) fn ping(&mut self) -> Result<(), Failure> {
        self.exchange(&[cmd("PING")]).map(drop)
    }

    /// Sends commands together, and then reads the reply to each.
    fn exchange(&mut self, commands: &[Cmd]) -> Result<Vec<Reply>, Failure> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.round_trips += 1;
        let values = self.connection.exchange(commands, TIMEOUT).map_err(|broken| {
            let command = broken.too_long.and_then(|place| commands.get(place));
            Failure { too_long: command.and_then(key_of), ..broken.why }
        })?;
        let mut replies = Vec::with_capacity(commands.len());
        for (value, command) in values.into_iter().zip(commands) {
            let Value::ServerError(error) = value else {
                replies.push(Reply::Value(value));
                continue;
            };
            replies.push(match (error.kind(), error.code()) {
                (Some(ServerErrorKind::NoScript), _) => Reply::NoScript,
                (_, "WRONGTYPE") => Reply::OtherKind,
                (_, "OOM") => Reply::NoRoom,
                (Some(ServerErrorKind::NoPerm), _) if is_scan(command) => Reply::NotAllowed,
                // An error within the script has the code of the script, so its details are searched.
                _ if error.details().is_some_and(|details| details.starts_with("WRONGTYPE")) => {
                    Reply::OtherKind
                }
                _ => return Err(RedisError::from(error).into()),
            });
        }
        Ok(replies)
    }

    fn name_prefix(&self) -> String {
        format!("{}name:", self.prefix)
    }

    fn name_key(&self, name: &Name) -> String {
        format!("{}{name}", self.name_prefix())
    }

    /// Returns the pattern that the keys of a scope's names match, or of all names. Domains and scopes have
    /// no characters that mean something in a pattern.
    fn name_pattern(&self, scope: Option<&Scope>) -> String {
        let prefix = self.name_prefix();
        scope.map_or_else(|| format!("{prefix}*"), |scope| format!("{prefix}{scope}/*"))
    }

    fn content_key(&self, root: &[u8; 32]) -> String {
        let root = root.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        format!("{}content:{root}", self.prefix)
    }

    /// Answers queries, in their order. All of them take one exchange, and one more for the fields that the
    /// lists of contents name. Tables that are left alone at `now` are not read.
    pub(super) fn run(
        &mut self,
        queries: &[Query],
        left_alone: &LeftAlone,
        now: Time,
    ) -> Result<Vec<Told>, Failure> {
        let is_readable = |name: &Name| !left_alone.has(now, &self.name_key(name));
        let tables: Vec<Vec<&Name>> = queries.iter().map(|query| tables(&query.ask, is_readable)).collect();
        let mut commands = Vec::new();
        for (query, tables) in queries.iter().zip(&tables) {
            commands.extend(tables.iter().map(|name| command("HGETALL", &self.name_key(name))));
            self.put(&query.ask, &mut commands);
        }
        let mut replies = self.exchange(&commands)?.into_iter();
        let (mut told, mut later, mut mend) = (Vec::new(), Vec::new(), Vec::new());
        for (place, query) in queries.iter().enumerate() {
            told.push(match &query.ask {
                // The table was not read, so its content is unknown.
                Ask::Name(_) if tables[place].is_empty() => Told::Failed,
                Ask::Name(_) | Ask::Tables(_) => {
                    let (mut all, mut wrong) = (Vec::new(), 0);
                    for name in &tables[place] {
                        wrong += u64::from(!fields(name, replies.next(), &mut all));
                    }
                    Told::Found { fields: all, nonsense: wrong }
                }
                Ask::Content { .. } => {
                    let (members, nonsense) = members(replies.next());
                    later.extend(members.into_iter().map(|(name, field)| (place, name, field)));
                    Told::Found { fields: Vec::new(), nonsense }
                }
                Ask::Names { .. } => names(&self.name_prefix(), replies.next()),
                Ask::Keep(keep) => {
                    let its: Vec<Reply> = replies.by_ref().take(list_commands(keep) + 1).collect();
                    if its.iter().any(|reply| matches!(reply, Reply::OtherKind | Reply::NoScript)) {
                        mend.push((place, &**keep));
                    }
                    kept(&its)
                }
            });
        }
        self.look(&later, &mut told)?;
        self.mend(&mend, &mut told)?;
        Ok(told)
    }

    /// Repeats what could not be kept or listed because the script was lost or a key has another type. Keys
    /// of another type are removed, because they would fail for ever.
    fn mend(&mut self, keeps: &[(usize, &Keep)], told: &mut [Told]) -> Result<(), Failure> {
        if keeps.is_empty() {
            return Ok(());
        }
        self.load()?;
        let key = |(_, keep): &(usize, &Keep)| {
            let content = keep.list.map(|list| self.content_key(&list.root));
            [Some((self.name_key(&keep.name), "hash")), content.map(|key| (key, "zset"))]
        };
        let keys: Vec<(String, &str)> = keeps.iter().flat_map(key).flatten().collect();
        let kinds = self.exchange(&keys.iter().map(|(key, _)| command("TYPE", key)).collect::<Vec<_>>())?;
        let is_wrong = |reply: &Reply, kind: &str| match reply {
            Reply::Value(Value::SimpleString(is)) => is != kind && is != "none",
            _ => false,
        };
        let wrong = keys.iter().zip(&kinds).filter(|((_, kind), reply)| is_wrong(reply, kind));
        let wrong: Vec<Cmd> = wrong.map(|((key, _), _)| command("DEL", key)).collect();
        self.exchange(&wrong)?;
        let mut commands = Vec::new();
        keeps.iter().for_each(|(_, keep)| self.put_keep(keep, &mut commands));
        let mut replies = self.exchange(&commands)?.into_iter();
        for (place, keep) in keeps {
            let its: Vec<Reply> = replies.by_ref().take(list_commands(keep) + 1).collect();
            // A publication that was kept the first time is already there, and is only listed now.
            if let Some(told) = told.get_mut(*place).filter(|told| **told != Told::Kept) {
                *told = kept(&its);
            }
        }
        Ok(())
    }

    /// Reads the fields that the lists have named.
    fn look(&mut self, later: &[(usize, Name, Vec<u8>)], told: &mut [Told]) -> Result<(), Failure> {
        let get = |(_, name, field): &(usize, Name, Vec<u8>)| {
            let mut get = command("HGET", &self.name_key(name));
            get.arg(field);
            get
        };
        let commands: Vec<Cmd> = later.iter().map(get).collect();
        let replies = self.exchange(&commands)?;
        for ((place, name, field), reply) in later.iter().zip(replies) {
            let Some(Told::Found { fields, nonsense }) = told.get_mut(*place) else { continue };
            match reply {
                Reply::Value(Value::BulkString(value)) => {
                    fields.push(Field { name: name.clone(), field: field.clone(), value });
                }
                // The field has been removed since.
                Reply::Value(Value::Nil) => {}
                _ => *nonsense += 1,
            }
        }
        Ok(())
    }

    /// Appends the commands of a question beside those that read tables.
    fn put(&self, ask: &Ask, commands: &mut Vec<Cmd>) {
        match ask {
            Ask::Name(_) | Ask::Tables(_) => {}
            Ask::Names { scope, cursor } => {
                let mut scan = cmd("SCAN");
                scan.arg(*cursor).arg("MATCH").arg(self.name_pattern(scope.as_ref()));
                scan.arg("COUNT").arg(PART_KEYS).arg("TYPE").arg("hash");
                commands.push(scan);
            }
            Ask::Content { root, after_ms, most } => {
                let mut range = command("ZRANGE", &self.content_key(root));
                range.arg("+inf").arg(format!("({after_ms}")).arg("BYSCORE").arg("REV");
                range.arg("LIMIT").arg(0).arg(*most);
                commands.push(range);
            }
            Ask::Keep(keep) => self.put_keep(keep, commands),
        }
    }

    fn put_keep(&self, keep: &Keep, commands: &mut Vec<Cmd>) {
        if let Some(list) = &keep.list {
            let key = self.content_key(&list.root);
            let mut clean = command("ZREMRANGEBYSCORE", &key);
            clean.arg("-inf").arg(list.now_ms);
            let mut add = command("ZADD", &key);
            // If another process has listed the field for longer, the later time stays.
            add.arg("GT").arg(list.until_ms).arg(member(&keep.name, &keep.field));
            let expire = |how: &str| {
                let mut expire = command("PEXPIRE", &key);
                expire.arg(life_ms(list.keep_for)).arg(how);
                expire
            };
            commands.extend([clean, add, expire("NX"), expire("GT")]);
        }
        let mut set = cmd("EVALSHA");
        set.arg(&self.script).arg(1).arg(self.name_key(&keep.name));
        set.arg(&keep.field).arg(&keep.value).arg(life_ms(keep.keep_for)).arg(keep.fields_max);
        set.arg(u8::from(keep.before.is_some())).arg(keep.before.as_deref().unwrap_or_default());
        for (field, value) in &keep.gone {
            set.arg(field).arg(value);
        }
        commands.push(set);
    }
}

/// Returns the names whose tables a question is about, without those that are not to be read.
fn tables(ask: &Ask, is_readable: impl Fn(&Name) -> bool) -> Vec<&Name> {
    let names = match ask {
        Ask::Name(name) => std::slice::from_ref(name),
        Ask::Tables(names) => names,
        Ask::Content { .. } | Ask::Names { .. } | Ask::Keep(_) => &[],
    };
    names.iter().filter(|name| is_readable(name)).collect()
}

/// Returns the result of keeping a publication from the replies to all its commands.
fn kept(replies: &[Reply]) -> Told {
    match replies.last() {
        _ if replies.iter().any(|reply| matches!(reply, Reply::NoRoom)) => Told::Full,
        Some(Reply::Value(Value::Int(1))) => Told::Kept,
        _ => Told::Changed,
    }
}

/// Returns the number of commands before the one that keeps.
const fn list_commands(keep: &Keep) -> usize {
    if keep.list.is_some() { 4 } else { 0 }
}

/// Returns the key of a command that has one key.
fn key_of(command: &Cmd) -> Option<String> {
    match command.args_iter().nth(1)? {
        redis::Arg::Simple(key) => std::str::from_utf8(key).ok().map(str::to_owned),
        _ => None,
    }
}

fn command(name: &str, key: &str) -> Cmd {
    let mut command = cmd(name);
    command.arg(key);
    command
}

/// Returns the life of a key in milliseconds, at least 1, because 0 would remove the key.
fn life_ms(span: Span) -> u64 {
    span.as_millis() + 1
}

/// Encodes a field as the member of a list. No name has a control character, so the first newline ends it.
fn member(name: &Name, field: &[u8]) -> Vec<u8> {
    [name.to_string().as_bytes(), b"\n", field].concat()
}

/// Returns the members of a list, and how many are malformed.
fn members(reply: Option<Reply>) -> (Vec<(Name, Vec<u8>)>, u64) {
    let Some(Reply::Value(Value::Array(members))) = reply else { return (Vec::new(), 1) };
    let all = members.len();
    let parse = |member: Value| {
        let Value::BulkString(member) = member else { return None };
        let end = member.iter().position(|byte| *byte == b'\n')?;
        let name = std::str::from_utf8(&member[..end]).ok()?.parse().ok()?;
        Some((name, member[end + 1..].to_vec()))
    };
    let known: Vec<_> = members.into_iter().filter_map(parse).collect();
    let nonsense = (all - known.len()) as u64;
    (known, nonsense)
}

/// Returns the names of a part of the list, from the reply to SCAN.
fn names(prefix: &str, reply: Option<Reply>) -> Told {
    let Some(Reply::Value(Value::Array(pair))) = reply else { return Told::Failed };
    let [Value::BulkString(next), Value::Array(keys)] = &pair[..] else { return Told::Failed };
    let Some(next) = std::str::from_utf8(next).ok().and_then(|next| next.parse().ok()) else {
        return Told::Failed;
    };
    let parse = |key: &Value| {
        let Value::BulkString(key) = key else { return None };
        std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.parse().ok()
    };
    let names: Vec<Name> = keys.iter().filter_map(parse).collect();
    let nonsense = (keys.len() - names.len()) as u64;
    Told::Names { names, next, nonsense }
}

/// Appends the fields of a name's table. Returns whether the reply is a table.
fn fields(name: &Name, reply: Option<Reply>, fields: &mut Vec<Field>) -> bool {
    let values = match reply {
        Some(Reply::Value(Value::Array(values))) => values,
        Some(Reply::Value(Value::Map(pairs))) => pairs.into_iter().flat_map(|(a, b)| [a, b]).collect(),
        _ => return false,
    };
    let mut values = values.into_iter();
    while let (Some(Value::BulkString(field)), Some(Value::BulkString(value))) =
        (values.next(), values.next())
    {
        fields.push(Field { name: name.clone(), field, value });
    }
    true
}

/// Whether a command is SCAN, which the users of some servers may not use.
fn is_scan(command: &Cmd) -> bool {
    matches!(command.args_iter().next(), Some(redis::Arg::Simple(b"SCAN")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_list_is_what_scan_answers() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let keys = ["anabranch:d:name:a/b", "anabranch:d:name:a", "anabranch:e:name:a/b", "x"].map(text);
        let reply = |next: &str| {
            let pair = vec![text(next), Value::Array(keys.to_vec())];
            names("anabranch:d:name:", Some(Reply::Value(Value::Array(pair))))
        };
        let name = "a/b".parse().expect("a name");
        assert_eq!(reply("17"), Told::Names { names: vec![name], next: 17, nonsense: 3 });
        assert_eq!(reply("-1"), Told::Failed);
        assert_eq!(names("", Some(Reply::NotAllowed)), Told::Failed);
    }

    #[test]
    fn a_table_that_is_too_long_is_left_alone_for_a_minute() {
        let (mut left_alone, now) = (LeftAlone::default(), Time::ZERO + Span::from_secs(5));
        let key = key_of(&command("HGETALL", "anabranch:d:name:a/b")).unwrap();
        left_alone.note(now, key);
        assert!(left_alone.has(now + Span::from_secs(59), "anabranch:d:name:a/b"));
        assert!(!left_alone.has(now + Span::from_secs(60), "anabranch:d:name:a/b"));
        for number in 0..5_000 {
            left_alone.note(now, number.to_string());
        }
        assert_eq!(left_alone.0.len(), LEFT_ALONE_MAX);
        left_alone.note(now + Span::from_secs(60), "x".into());
        assert_eq!(left_alone.0.len(), 1);
    }
}
