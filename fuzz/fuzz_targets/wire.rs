//! Any UDP payload: what parses, re-emitted, parses to the same packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use anabranch_mmtp::id::LENGTH_MAX;
use anabranch_mmtp::wire::{self, Packet, Range};

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = wire::parse(bytes) else { return };
    let prefix = wire::peek(bytes).expect("a packet has a prefix");
    assert_eq!((prefix.version, prefix.tag), (wire::VERSION, packet.tag()));
    let mut out = Vec::new();
    match packet {
        Packet::Request(request) => {
            assert!(prefix.expects_reply && request.content.length <= LENGTH_MAX);
            let ranges: Vec<Range> = request.ranges.collect();
            assert_eq!(ranges.len(), request.ranges.len());
            wire::emit_request(
                &mut out,
                request.tag,
                request.cookie.as_ref(),
                request.ect,
                &request.content,
                &ranges,
            );
            if request.no_caches {
                wire::set_no_caches(&mut out);
            }
            // META ranges lose their argument; so the views are compared by what they mean.
            let Ok(Packet::Request(again)) = wire::parse(&out) else { panic!("a request stays one") };
            assert!(again.ranges.eq(ranges));
            assert_eq!(
                (again.cookie, again.ect, again.no_caches, again.content),
                (request.cookie, request.ect, request.no_caches, request.content)
            );
            return assert!(out.len() <= bytes.len());
        }
        Packet::Data(data) => {
            wire::emit_data(&mut out, data.tag, data.cut, data.chunk, data.payload, data.payload.len());
            if let Some(node) = data.responder {
                wire::set_responder(&mut out, node);
            }
        }
        Packet::Hashes(hashes) => {
            wire::emit_hashes(&mut out, hashes.tag, hashes.level, hashes.first, hashes.cvs);
            if let Some(node) = hashes.responder {
                wire::set_responder(&mut out, node);
            }
        }
        Packet::Meta(meta) => wire::emit_meta(&mut out, meta.tag, &meta.content, meta.collection, meta.name),
        Packet::Cookie { tag, cookie } => wire::emit_cookie(&mut out, tag, &cookie),
        Packet::Refuse { tag, reason, version, retry_ms } => {
            if version != wire::VERSION {
                return;
            }
            wire::emit_refuse(&mut out, tag, reason, retry_ms);
        }
        Packet::Probe { tag, cookie, size } => {
            assert!(prefix.expects_reply);
            wire::emit_probe(&mut out, tag, cookie.as_ref(), size);
        }
        Packet::Padded { tag, size } => {
            // With extensions the body begins later, so that a PADDED may be all header.
            wire::emit_padded(&mut out, tag, size);
        }
    }
    assert!(out.len() <= bytes.len());
    assert_eq!(wire::parse(&out), Ok(packet));
});
