//! Written options are read again; options that were read are written again or refused; nothing panics.

use std::net::IpAddr;

use anabranch_mptcp_wire::{
    AddAddr, DataNumber, Dss, DssMapping, Join, Key, MpCapable, MptcpOption, OptionBuffer, RemoveAddr, Reset,
    TcpOption, TcpOptions, expand,
};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = DataNumber> {
    prop_oneof![any::<u32>().prop_map(DataNumber::Short), any::<u64>().prop_map(DataNumber::Full)]
}

fn dss() -> impl Strategy<Value = MptcpOption<'static>> {
    let mapping = (number(), any::<u32>(), any::<u16>(), any::<Option<u16>>()).prop_map(
        |(data_seq, subflow_seq, data_bytes, checksum)| DssMapping {
            data_seq,
            subflow_seq,
            data_bytes,
            checksum,
        },
    );
    (prop::option::of(number()), prop::option::of(mapping), any::<bool>())
        .prop_map(|(data_ack, mapping, data_fin)| MptcpOption::Dss(Dss { data_ack, mapping, data_fin }))
}

fn capable() -> impl Strategy<Value = MptcpOption<'static>> {
    (0..16_u8, any::<u8>(), 0..5_u8, any::<(u64, u64, u16, u16)>()).prop_map(
        |(version, flags, parts, (a, b, len, sum))| {
            MptcpOption::Capable(MpCapable {
                version,
                flags,
                sender_key: (parts > 0).then_some(Key(a)),
                receiver_key: (parts > 1).then_some(Key(b)),
                data_bytes: (parts > 2).then_some(len),
                checksum: (parts > 3).then_some(sum),
            })
        },
    )
}

fn join() -> impl Strategy<Value = MptcpOption<'static>> {
    let syn = any::<(bool, u8, u32, u32)>().prop_map(|(backup, address_id, token, nonce)| Join::Syn {
        backup,
        address_id,
        token,
        nonce,
    });
    let syn_ack = any::<(bool, u8, u64, u32)>().prop_map(|(backup, address_id, hmac, nonce)| Join::SynAck {
        backup,
        address_id,
        hmac,
        nonce,
    });
    let ack = any::<[u8; 20]>().prop_map(|hmac| Join::Ack { hmac });
    prop_oneof![syn, syn_ack, ack].prop_map(MptcpOption::Join)
}

fn add_addr() -> impl Strategy<Value = MptcpOption<'static>> {
    let v1 = (any::<(bool, u8, IpAddr)>(), any::<Option<u16>>(), any::<Option<u64>>()).prop_map(
        |((echo, address_id, address), port, hmac)| AddAddr::V1 { echo, address_id, address, port, hmac },
    );
    let v0 = (any::<(u8, IpAddr)>(), any::<Option<u16>>())
        .prop_map(|((address_id, address), port)| AddAddr::V0 { address_id, address, port });
    prop_oneof![v1, v0].prop_map(MptcpOption::AddAddr)
}

fn option() -> impl Strategy<Value = MptcpOption<'static>> {
    prop_oneof![
        dss(),
        capable(),
        join(),
        add_addr(),
        any::<(bool, Option<u8>)>().prop_map(|(backup, address_id)| MptcpOption::Prio { backup, address_id }),
        any::<u64>().prop_map(|data_seq| MptcpOption::Fail { data_seq }),
        any::<u64>().prop_map(|key| MptcpOption::FastClose { key: Key(key) }),
        (0..16_u8, any::<u8>()).prop_map(|(flags, reason)| MptcpOption::Reset(Reset { flags, reason })),
        (1..=37_usize).prop_map(|n| {
            const IDS: [u8; 37] = [7; 37];
            MptcpOption::RemoveAddr(RemoveAddr { address_ids: &IDS[..n] })
        }),
    ]
}

proptest! {
    #[test]
    fn written_is_read(option in option()) {
        let mut buffer = OptionBuffer::default();
        prop_assert!(buffer.push(&TcpOption::Mptcp(option)));
        prop_assert_eq!(buffer.iter().collect::<Vec<_>>(), [Ok(TcpOption::Mptcp(option))]);
        prop_assert_eq!(buffer.as_bytes().len() % 4, 0);
        // A buffer that is too small is refused.
        let mut out = [0; 40];
        let len = TcpOption::Mptcp(option).write(&mut out).unwrap();
        prop_assert_eq!(TcpOption::Mptcp(option).write(&mut vec![0; len - 1]), None);
    }

    #[test]
    fn read_is_written(
        bytes in prop::collection::vec(prop_oneof![Just(30_u8), 0..36_u8, any::<u8>()], 0..60),
    ) {
        for option in TcpOptions::new(&bytes).flatten() {
            let mut out = [0; 64];
            if let Some(len) = option.write(&mut out) {
                prop_assert_eq!(TcpOptions::new(&out[..len]).next(), Some(Ok(option)));
            }
        }
    }

    #[test]
    fn numbers_are_expanded_to_the_closest(near in any::<u64>(), ahead in -0x8000_0000..0x8000_0000_i64) {
        let whole = near.wrapping_add_signed(ahead);
        prop_assert_eq!(expand(whole as u32, near), whole);
    }
}
