//! Packets for tests.

extern crate std;

use std::vec;
use std::vec::Vec;

use crate::packet::{End, ICMP, TCP, UDP};

fn sum(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
    let pairs = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = pairs.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

fn ip(protocol: u8, from: u32, to: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0];
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    let len = (20 + payload.len()) as u16;
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    let check = sum(&[&bytes]);
    bytes[10..12].copy_from_slice(&check.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn pseudo(packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet[12..20].to_vec();
    bytes.extend([0, packet[9]]);
    bytes.extend((packet.len() as u16 - 20).to_be_bytes());
    bytes
}

/// Makes a packet of TCP or UDP.
pub(crate) fn transport(protocol: u8, from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let (header_bytes, sum_at) = if protocol == TCP { (20, 16) } else { (8, 6) };
    let mut segment = vec![0; header_bytes];
    segment[..2].copy_from_slice(&from.port.to_be_bytes());
    segment[2..4].copy_from_slice(&to.port.to_be_bytes());
    match protocol {
        TCP => segment[12..14].copy_from_slice(&[0x50, 0x10]),
        _ => segment[4..6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes()),
    }
    segment.extend(payload);
    let mut packet = ip(protocol, from.address, to.address, &segment);
    let check = sum(&[&pseudo(&packet), &packet[20..]]);
    packet[20 + sum_at..22 + sum_at].copy_from_slice(&check.to_be_bytes());
    packet
}

fn icmp(from: u32, to: u32, mut message: Vec<u8>) -> Vec<u8> {
    let check = sum(&[&message]);
    message[2..4].copy_from_slice(&check.to_be_bytes());
    ip(ICMP, from, to, &message)
}

/// Makes an echo request or reply.
pub(crate) fn echo(is_request: bool, from: u32, to: u32, id: u16) -> Vec<u8> {
    let mut message = vec![if is_request { 8 } else { 0 }, 0, 0, 0];
    message.extend(id.to_be_bytes());
    message.extend([0, 1, 1, 2, 3]);
    icmp(from, to, message)
}

/// Makes the error "destination unreachable" about a packet, to its source.
pub(crate) fn error_about(packet: &[u8], from: u32) -> Vec<u8> {
    let mut message = vec![3, 1, 0, 0, 0, 0, 0, 0];
    message.extend(&packet[..28]);
    icmp(from, u32::from_be_bytes([packet[12], packet[13], packet[14], packet[15]]), message)
}

/// Whether all checksums of a packet are right.
pub(crate) fn is_intact(packet: &[u8]) -> bool {
    let transport = match packet[9] {
        ICMP => sum(&[&packet[20..]]),
        TCP | UDP => sum(&[&pseudo(packet), &packet[20..]]),
        _ => 0,
    };
    sum(&[&packet[..20]]) == 0 && transport == 0
}
