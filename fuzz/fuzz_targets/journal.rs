//! Any journal: what is read of it is what is written in it.
#![no_main]

use anabranch::on_disk::journal::{
    Behind, HEADER_BYTES, Record, SLOT_BYTES, Slot, Unreadable, header, parse, parse_slot, slot, slot_offset,
};
use libfuzzer_sys::fuzz_target;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::{BLOCK_BYTES, LENGTH_MAX};

fn check(bytes: &[u8]) {
    let (id, records) = match parse(bytes) {
        Ok(parsed) => parsed,
        Err(Unreadable::Blank) => {
            return assert!(bytes.iter().take(HEADER_BYTES).all(|byte| *byte == 0));
        }
        Err(_) => return,
    };
    assert!(id.length <= LENGTH_MAX);
    assert_eq!(header(&id), bytes[..HEADER_BYTES]);
    let mut next = 0;
    for (block, record) in records {
        assert!((next..id.blocks()).contains(&block), "in order, once, and of the content");
        for empty in next..block {
            let at = slot_offset(empty) as usize;
            assert_eq!(parse_slot(&id, empty, &bytes[at..at + SLOT_BYTES]), None);
        }
        let at = slot_offset(block) as usize;
        assert_eq!(slot(&id, block, &record), bytes[at..at + SLOT_BYTES]);
        next = block + 1;
    }
    let end = usize::try_from(slot_offset(id.blocks())).ok();
    let behind = end.and_then(|end| bytes.get(end..)).unwrap_or_default();
    let records = Behind::parse(&id, behind);
    let count = [Record::Alias, Record::Refuted, Record::TriedAlone].map(|kind| records.all(kind).count());
    assert!(count.iter().sum::<usize>() <= behind.len() / SLOT_BYTES);
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // A header nobody could guess, in front of any slots; a few of them, as the input says, are good ones.
    let Some((&[size, good], rest)) = bytes.split_first_chunk::<2>() else { return };
    let length = match size {
        255 => LENGTH_MAX,
        254 => 0,
        _ => u64::from(size) * (BLOCK_BYTES as u64 / 8) + 1,
    };
    let id = ContentId { root: [good; 32], length };
    let mut journal = [&header(&id), rest].concat();
    for (block, bit) in (0..8_u32).map(|bit| (u64::from(bit) * 2, bit)) {
        let at = slot_offset(block) as usize;
        if let Some(place) = journal.get_mut(at..at + SLOT_BYTES)
            && good >> bit & 1 == 1
        {
            let (cv, mark) = ([place[0]; 32], place[1]);
            place.copy_from_slice(&slot(&id, block, &Slot { cv, mark }));
        }
    }
    check(&journal);
    let (read, records) = parse(&journal).expect("the header is right");
    assert_eq!(read, id);
    for (block, bit) in (0..8_u32).map(|bit| (u64::from(bit) * 2, bit)) {
        let there = (slot_offset(block + 1) as usize) <= journal.len() && block < id.blocks();
        if there && good >> bit & 1 == 1 {
            assert!(records.iter().any(|(recorded, _)| *recorded == block), "block {block} was recorded");
        }
    }
    // One changed byte of a header and nothing is read.
    let at = usize::from(good) % HEADER_BYTES;
    journal[at] ^= size | 1;
    assert!(parse(&journal).is_err());
});
