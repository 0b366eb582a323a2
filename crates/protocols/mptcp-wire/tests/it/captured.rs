//! Two connections of the kernel with itself (Linux 6.18, two veth pairs between two namespaces, AF_PACKET at
//! the client), without and with checksums. The options are those of the segments, byte for byte.

use std::net::{IpAddr, Ipv4Addr};

use anabranch_mptcp_wire::checksum::dss_checksum;
use anabranch_mptcp_wire::keys::join_hmac_short;
use anabranch_mptcp_wire::{
    AddAddr, DataNumber, Dss, DssMapping, Join, Key, MpCapable, MptcpOption, OptionBuffer, RemoveAddr, Reset,
    TcpOption, TcpOptions, Version,
};

use crate::hex;

const CLIENT: Key = Key(0xb688_01ab_9fb2_d5aa);
const SERVER: Key = Key(0x3f6d_f0f9_5082_ba01);
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 2, 2));

/// Returns the Multipath TCP options of a segment. Checks that all options can be read, and that writing them
/// again gives the same option 30.
fn mptcp(bytes: &[u8]) -> Vec<MptcpOption<'_>> {
    let all: Vec<_> = TcpOptions::new(bytes).collect::<Result<_, _>>().expect("whole options");
    for option in &all {
        let mut buffer = OptionBuffer::default();
        assert!(buffer.push(option), "{option:?}");
        let written = buffer.as_bytes();
        let len = usize::from(written[1]);
        assert!(bytes.windows(len).any(|window| window == &written[..len]), "{option:?}");
    }
    TcpOptions::new(bytes).mptcp().collect()
}

fn full(number: u64) -> DataNumber {
    DataNumber::Full(number)
}

#[test]
fn the_first_handshake() {
    let syn = hex("020405b4 0402080a 6ae8cb1a 00000000 0103030a 1e040101");
    assert_eq!(mptcp(&syn), [MptcpOption::Capable(MpCapable::new(1, MpCapable::HMAC))]);
    let options: Vec<_> = TcpOptions::new(&syn).flatten().collect();
    assert_eq!(
        options[..4],
        [
            TcpOption::Mss(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value: 0x6ae8_cb1a, echo: 0 },
            TcpOption::WindowScale(10),
        ]
    );

    let syn_ack = hex("020405b4 0402080a 3485e230 6ae8cb1a 0103030a 1e0c0101 3f6df0f95082ba01");
    let capable = MpCapable { sender_key: Some(SERVER), ..MpCapable::new(1, MpCapable::HMAC) };
    assert_eq!(mptcp(&syn_ack), [MptcpOption::Capable(capable)]);

    let ack = hex("0101080a 6ae8cb1a 3485e230 1e140101 b68801ab9fb2d5aa 3f6df0f95082ba01");
    let capable = MpCapable {
        sender_key: Some(CLIENT),
        receiver_key: Some(SERVER),
        ..MpCapable::new(1, MpCapable::HMAC)
    };
    assert_eq!(mptcp(&ack), [MptcpOption::Capable(capable)]);

    let hello = hex("0101080a 6ae8cb1a 3485e230 1e160101 b68801ab9fb2d5aa 3f6df0f95082ba01 0005 0101");
    assert_eq!(mptcp(&hello), [MptcpOption::Capable(MpCapable { data_bytes: Some(5), ..capable })]);
}

#[test]
fn data_and_its_acknowledgements() {
    let ack = hex("0101080a 3485e230 6ae8cb1a 1e0c2003 23efdd695c5c4355");
    let first = CLIENT.initial_data_seq(Version::V1) + 1;
    let data_ack = Some(full(first + 5));
    assert_eq!(mptcp(&ack), [MptcpOption::Dss(Dss { data_ack, ..Dss::default() })]);

    let reply =
        hex("0101080a 3485e230 6ae8cb1a 1e1a200f 23efdd695c5c4355 1a01b29c86ecd31e 00000001 0005 0101");
    let mapping = DssMapping {
        data_seq: full(SERVER.initial_data_seq(Version::V1) + 1),
        subflow_seq: 1,
        data_bytes: 5,
        checksum: None,
    };
    assert_eq!(mptcp(&reply), [MptcpOption::Dss(Dss { data_ack, mapping: Some(mapping), data_fin: false })]);
}

#[test]
fn an_address_is_announced_joined_and_removed() {
    let announced = hex("0101080a 3485e230 6ae8cb1a 1e103001 0a090202 c3ef1c51a6c13471");
    let hmac = SERVER.add_addr_hmac(CLIENT, 1, SECOND, None);
    assert_eq!(hmac, 0xc3ef_1c51_a6c1_3471);
    let address = AddAddr::V1 { echo: false, address_id: 1, address: SECOND, port: None, hmac: Some(hmac) };
    assert_eq!(mptcp(&announced), [MptcpOption::AddAddr(address)]);
    let echoed = hex("0101080a 6ae8cb1a 3485e230 1e083101 0a090202");
    let address = AddAddr::V1 { echo: true, address_id: 1, address: SECOND, port: None, hmac: None };
    assert_eq!(mptcp(&echoed), [MptcpOption::AddAddr(address)]);

    let syn = hex("020405b4 0402080a a5a7142c 00000000 0103030a 1e0c1001 4441a948 867656f0");
    let (nonce, peer_nonce) = (0x8676_56f0, 0x8c55_19ac);
    let join = Join::Syn { backup: false, address_id: 1, token: SERVER.token(Version::V1), nonce };
    assert_eq!(mptcp(&syn), [MptcpOption::Join(join)]);
    let syn_ack = hex("020405b4 0402080a 4dbe1f24 a5a7142c 0103030a 1e101001 bd3da2dfdcd9b47a 8c5519ac");
    let hmac = join_hmac_short(&SERVER.join_hmac(CLIENT, peer_nonce, nonce, Version::V1));
    let join = Join::SynAck { backup: false, address_id: 1, hmac, nonce: peer_nonce };
    assert_eq!(mptcp(&syn_ack), [MptcpOption::Join(join)]);
    let ack = hex("0101080a a5a7142c 4dbe1f24 1e181000 97a817ba5d347b842a2cb231c80a8580c6847bc6");
    let hmac = CLIENT.join_hmac(SERVER, nonce, peer_nonce, Version::V1);
    assert_eq!(mptcp(&ack), [MptcpOption::Join(Join::Ack { hmac })]);

    let removed = hex("0101080a 3485e426 6ae8cd10 1e0c2003 23efdd695c5c4355 1e044001");
    let removal = MptcpOption::RemoveAddr(RemoveAddr { address_ids: &[1] });
    assert!(mptcp(&removed).contains(&removal));
}

#[test]
fn a_fast_close_with_its_reason() {
    let bytes = hex("0101080a 6ae8d02f 3485e70e 1e0c7000 3f6df0f95082ba01 1e048000");
    let reset = Reset { flags: 0, reason: Reset::UNSPECIFIED };
    assert_eq!(mptcp(&bytes), [MptcpOption::FastClose { key: SERVER }, MptcpOption::Reset(reset)]);
}

#[test]
fn checksums() {
    let client = Key(0x7190_ff4a_c42b_ef00);
    let hello = hex("0101080a fffdbda2 3890521a 1e180181 7190ff4ac42bef00 56bac69ac39040df 0005 8945");
    let [MptcpOption::Capable(capable)] = mptcp(&hello)[..] else { panic!("MP_CAPABLE") };
    assert_eq!(capable.flags, MpCapable::CHECKSUM | MpCapable::HMAC);
    let first = client.initial_data_seq(Version::V1) + 1;
    assert_eq!(capable.checksum, Some(dss_checksum(first, 1, 5, [b"hello".as_slice()])));

    let more =
        hex("0101080a 3890540e fffdbda2 1e1c200f 7dd2a356a62e6b8f c118939c4106e16e 00000006 0004 a8f6");
    let [MptcpOption::Dss(Dss { mapping: Some(mapping), .. })] = mptcp(&more)[..] else { panic!("DSS") };
    assert_eq!((mapping.data_seq, mapping.subflow_seq), (full(0xc118_939c_4106_e16e), 6));
    // The checksum is the same for pieces of odd lengths.
    for parts in [[b"more".as_slice(), b""], [b"m", b"ore"], [b"mor", b"e"]] {
        assert_eq!(mapping.checksum, Some(dss_checksum(0xc118_939c_4106_e16e, 6, 4, parts)));
    }
}
