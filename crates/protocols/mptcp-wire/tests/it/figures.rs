//! The forms that RFC 6824 (version 0) and RFC 8684 (version 1) draw and the kernel did not send, and options
//! that a capture has cut off or damaged.

use std::net::{IpAddr, Ipv6Addr};

use anabranch_mptcp_wire::{
    AddAddr, DataNumber, Dss, DssMapping, Join, Key, MpCapable, MptcpOption, OptionBuffer, OptionError,
    SackBlocks, TcpOption, TcpOptions, Version,
};

use crate::hex;

/// Checks in both directions that these bytes are this option.
fn same(bytes: &str, option: MptcpOption<'_>) {
    let bytes = hex(bytes);
    assert_eq!(TcpOptions::new(&bytes).collect::<Vec<_>>(), [Ok(TcpOption::Mptcp(option))]);
    let mut out = [0; 40];
    let len = TcpOption::Mptcp(option).write(&mut out).expect("it fits");
    assert_eq!(out[..len], bytes, "{option:?}");
}

#[test]
fn version_0() {
    let (key, peer) = (Key(0xb688_01ab_9fb2_d5aa), Key(0x3f6d_f0f9_5082_ba01));
    // These values were computed with Python's hashlib.
    assert_eq!(key.token(Version::V0), 0x149c_75d6);
    assert_eq!(key.initial_data_seq(Version::V0), 0x74cf_dde2_113b_9cf0);
    let hmac = key.join_hmac(peer, 0x8676_56f0, 0x8c55_19ac, Version::V0);
    assert_eq!(hmac.to_vec(), hex("4c343676260a9bf3113f189a55280554cb74bdde"));
    // RFC 6824 figure 4: the SYN has a key in version 0.
    let capable = MpCapable { sender_key: Some(key), ..MpCapable::new(0, 0x81) };
    same("1e0c 0081 b68801ab9fb2d5aa", MptcpOption::Capable(capable));
    // Figures 12 and 14: ADD_ADDR with the version of IP, MP_PRIO for another address.
    let address = IpAddr::from([10, 0, 0, 1]);
    same("1e08 3402 0a000001", MptcpOption::AddAddr(AddAddr::V0 { address_id: 2, address, port: None }));
    let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let port = Some(443);
    same(
        "1e16 3603 00000000000000000000000000000001 01bb",
        MptcpOption::AddAddr(AddAddr::V0 { address_id: 3, address, port }),
    );
    same("1e04 5107", MptcpOption::Prio { backup: true, address_id: Some(7) });
}

#[test]
fn version_1() {
    same("1e03 51", MptcpOption::Prio { backup: true, address_id: None });
    same("1e0c 6000 0102030405060708", MptcpOption::Fail { data_seq: 0x0102_0304_0506_0708 });
    same("1e0c 1105 01020304 0a0b0c0d", {
        MptcpOption::Join(Join::Syn { backup: true, address_id: 5, token: 0x0102_0304, nonce: 0x0a0b_0c0d })
    });
    let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
    same("1e1e 3009 00000000000000000000000000000001 1389 1122334455667788", {
        let hmac = Some(0x1122_3344_5566_7788);
        MptcpOption::AddAddr(AddAddr::V1 { echo: false, address_id: 9, address, port: Some(5001), hmac })
    });
    // Short numbers of 32 bits, DATA_FIN, and an infinite mapping.
    let mapping = DssMapping {
        data_seq: DataNumber::Short(0x0506_0708),
        subflow_seq: 0,
        data_bytes: 1,
        checksum: None,
    };
    same("1e12 2015 00000009 05060708 00000000 0001", {
        let data_ack = Some(DataNumber::Short(9));
        MptcpOption::Dss(Dss { data_ack, mapping: Some(mapping), data_fin: true })
    });
    let mapping = DssMapping { data_bytes: 0, checksum: Some(0), ..mapping };
    assert!(mapping.is_infinite());
    same("1e10 2004 05060708 00000000 0000 0000", {
        MptcpOption::Dss(Dss { data_ack: None, mapping: Some(mapping), data_fin: false })
    });
    let body = hex("e1 00 ff");
    same("1e05 e100ff", MptcpOption::Unknown { subtype: 14, body: &body });
}

#[test]
fn what_was_cut_off_and_what_lies() {
    let whole = hex("0101080a 6ae8cb1a 3485e230 1e0c2003 23efdd695c5c4355");
    let timestamps = TcpOption::Timestamps { value: 0x6ae8_cb1a, echo: 0x3485_e230 };
    for snap in 12..whole.len() {
        let read: Vec<_> = TcpOptions::new(&whole[..snap]).collect();
        assert_eq!(read[0], Ok(timestamps));
        let claimed_bytes = (snap > 13).then_some(12);
        match snap {
            12 => assert_eq!(read.len(), 1),
            _ => assert_eq!(read[1], Err(OptionError::Truncated { kind: 30, claimed_bytes })),
        }
        assert!(read.len() <= 2);
    }
    // After a length that no MSS has, the next option is still read. After a length below 2, none is.
    let lies = hex("0205 05b400 0402 0300 0402");
    let read: Vec<_> = TcpOptions::new(&lies).collect();
    let bad = |kind, bytes| Err(OptionError::BadLength { kind, bytes });
    assert_eq!(read, [bad(2, 5), Ok(TcpOption::SackPermitted), bad(3, 0)]);
    // No option is read after the end of the list.
    assert_eq!(TcpOptions::new(&hex("0101 00 0402")).count(), 0);
    let no_such_join = hex("1e0b 1000 01020304050607");
    assert_eq!(TcpOptions::new(&no_such_join).next(), Some(bad(30, 11)));
}

#[test]
fn a_full_buffer_takes_no_more() {
    let mut buffer = OptionBuffer::default();
    let mut blocks = SackBlocks::default();
    assert!((0..4).all(|i| blocks.push(i, i + 1)) && !blocks.push(9, 10));
    assert!(buffer.push(&TcpOption::Sack(blocks)));
    assert!(!buffer.push(&TcpOption::Timestamps { value: 1, echo: 2 }));
    assert!(buffer.push(&TcpOption::Mss(1)) && buffer.room() == 2);
    assert_eq!(buffer.iter().count(), 2);
    assert_eq!(buffer.as_bytes().len(), 40);
    assert_eq!(
        OptionBuffer::from_wire(buffer.as_bytes()).as_ref().map(OptionBuffer::as_bytes),
        Some(buffer.as_bytes())
    );
    assert_eq!(OptionBuffer::from_wire(&[1; 41]), None);
}
