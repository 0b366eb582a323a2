//! The stations of a WiFi interface (`linux/nl80211.h`), over generic netlink.
//!
//! A client has one station: its access point. What a driver does not report is missing here, too.

use anabranch_algo::Rate;
use anabranch_algo::wifi::Reading;

use super::generic::{self, FIXED};
use super::message::{Attributes, NLM_F_DUMP, NLM_F_REQUEST, Request, u16_at, u32_at};
use super::socket::Socket;
use super::{Error, Result};

const NAME: &str = "nl80211";
const CMD_GET_STATION: u8 = 17;
const CMD_NEW_STATION: u8 = 19;
const ATTR_IFINDEX: u16 = 3;
const ATTR_MAC: u16 = 6;
const ATTR_STA_INFO: u16 = 21;
const STA_INFO_INACTIVE_TIME: u16 = 1;
const STA_INFO_SIGNAL: u16 = 7;
const STA_INFO_TX_BITRATE: u16 = 8;
const STA_INFO_TX_PACKETS: u16 = 10;
const STA_INFO_TX_RETRIES: u16 = 11;
const STA_INFO_TX_FAILED: u16 = 12;
const STA_INFO_SIGNAL_AVG: u16 = 13;
const STA_INFO_BEACON_LOSS: u16 = 18;
const RATE_INFO_BITRATE: u16 = 1;
const RATE_INFO_BITRATE32: u16 = 5;
/// The unit of bit rates, in bits a second.
const RATE_UNIT: u64 = 100_000;

/// A station that a WiFi interface talks to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Station {
    /// The station's hardware address.
    pub mac: [u8; 6],
    /// The index of the interface.
    pub device: u32,
    /// The time since the station was last heard, in milliseconds.
    pub inactive_ms: Option<u32>,
    /// The signal of the last frame, in dBm.
    pub signal_dbm: Option<i8>,
    /// The mean signal of recent frames, in dBm.
    pub signal_avg_dbm: Option<i8>,
    /// The bit rate of sent frames.
    pub tx_rate: Option<Rate>,
    /// Packets sent.
    pub tx_packets: u32,
    /// Attempts beyond the first of each packet.
    pub tx_retries: u32,
    /// Packets given up.
    pub tx_failed: u32,
    /// Times that beacons were missed.
    pub beacon_loss: u32,
}

impl Station {
    /// Reads the body of an `NL80211_CMD_NEW_STATION` message, from `struct genlmsghdr` on.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        if *body.first()? != CMD_NEW_STATION {
            return None;
        }
        let (mut station, mut has_mac) = (Self::default(), false);
        for (kind, value) in Attributes::after(body, FIXED) {
            match kind {
                ATTR_IFINDEX => station.device = u32_at(value, 0)?,
                ATTR_MAC => (station.mac, has_mac) = (*value.first_chunk()?, true),
                ATTR_STA_INFO => station.read_info(value),
                _ => {}
            }
        }
        has_mac.then_some(station)
    }

    fn read_info(&mut self, info: &[u8]) {
        let dbm = |value: &[u8]| value.first().map(|byte| byte.cast_signed());
        let count = |value: &[u8]| u32_at(value, 0).unwrap_or(0);
        for (kind, value) in Attributes(info) {
            match kind {
                STA_INFO_INACTIVE_TIME => self.inactive_ms = u32_at(value, 0),
                STA_INFO_SIGNAL => self.signal_dbm = dbm(value),
                STA_INFO_SIGNAL_AVG => self.signal_avg_dbm = dbm(value),
                STA_INFO_TX_BITRATE => self.tx_rate = rate(value),
                STA_INFO_TX_PACKETS => self.tx_packets = count(value),
                STA_INFO_TX_RETRIES => self.tx_retries = count(value),
                STA_INFO_TX_FAILED => self.tx_failed = count(value),
                STA_INFO_BEACON_LOSS => self.beacon_loss = count(value),
                _ => {}
            }
        }
    }

    /// Returns what a watch for fading takes of it. The mean signal comes before that of the last frame.
    #[must_use]
    pub fn reading(&self) -> Reading {
        Reading {
            signal_dbm: self.signal_avg_dbm.or(self.signal_dbm),
            rate: self.tx_rate,
            packets: self.tx_packets.into(),
            retries: self.tx_retries.into(),
            lost: self.tx_failed.into(),
            beacons_missed: self.beacon_loss.into(),
        }
    }
}

/// Reads a bit rate (`NL80211_RATE_INFO_*`); the number of 32 bits is exact for rates beyond 6.5 Gbit/s.
fn rate(info: &[u8]) -> Option<Rate> {
    let (mut short, mut long) = (None, None);
    for (kind, value) in Attributes(info) {
        match kind {
            RATE_INFO_BITRATE => short = u16_at(value, 0).map(u32::from),
            RATE_INFO_BITRATE32 => long = u32_at(value, 0),
            _ => {}
        }
    }
    let units = long.or(short).filter(|units| *units > 0)?;
    Some(Rate::from_bits(u64::from(units) * RATE_UNIT))
}

/// Reads the stations of WiFi interfaces.
#[derive(Debug)]
pub struct Nl80211 {
    socket: Socket,
    family: u16,
}

impl Nl80211 {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no WiFi (cfg80211 is not loaded).
    pub fn open() -> Result<Self> {
        let opened = generic::open(NAME);
        let (socket, family) = opened.map_err(|failure| Error::new("reach the kernel's WiFi", failure))?;
        Ok(Self { socket, family })
    }

    /// Lists the stations of an interface: of a client, its access point.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface; `EOPNOTSUPP` if it is no WiFi interface or its driver does not
    /// tell.
    pub fn stations(&self, device: u32) -> Result<Vec<Station>> {
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut request = Request::new(self.family, flags, &[CMD_GET_STATION, 0, 0, 0]);
        request.u32(ATTR_IFINDEX, device);
        let stations = self.socket.dump(&request, |message| Station::parse(message.body));
        stations.map_err(|failure| Error::new(format!("list the stations of interface {device}"), failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::Messages;

    /// Returns a message as mac80211 sends it for the access point of a client: more attributes than are
    /// read, and a 64-bit counter with its padding.
    fn recorded() -> Vec<u8> {
        let mut message = Request::new(0x22, 2, &[CMD_NEW_STATION, 1, 0, 0]);
        message.u32(ATTR_IFINDEX, 3).attribute(ATTR_MAC, &[2, 0, 0, 0, 1, 7]).u32(46, 5);
        message.nest(ATTR_STA_INFO, &[], |info| {
            info.u32(16, 812).u32(STA_INFO_INACTIVE_TIME, 40).u32(2, 91_234_567).u32(3, 1_234_567);
            info.attribute(23, &91_234_567_u64.to_ne_bytes());
            info.attribute(STA_INFO_SIGNAL, &[(-61_i8).cast_unsigned()]);
            info.attribute(STA_INFO_SIGNAL_AVG, &[(-63_i8).cast_unsigned()]);
            info.nest(STA_INFO_TX_BITRATE, &[], |rate| {
                rate.attribute(RATE_INFO_BITRATE, &1_300_u16.to_ne_bytes());
                rate.u32(RATE_INFO_BITRATE32, 1_300).attribute(2, &[15]).attribute(3, &[]);
            });
            info.u32(9, 70_000).u32(STA_INFO_TX_PACKETS, 51_000).u32(STA_INFO_TX_RETRIES, 4_200);
            info.u32(STA_INFO_TX_FAILED, 17).u32(STA_INFO_BEACON_LOSS, 2);
        });
        message.finish(1)
    }

    #[test]
    fn a_station_is_read() {
        let bytes = recorded();
        let message = Messages(&bytes).next().unwrap();
        let station = Station::parse(message.body).unwrap();
        let expected = Station {
            mac: [2, 0, 0, 0, 1, 7],
            device: 3,
            inactive_ms: Some(40),
            signal_dbm: Some(-61),
            signal_avg_dbm: Some(-63),
            tx_rate: Some(Rate::from_bits(130_000_000)),
            tx_packets: 51_000,
            tx_retries: 4_200,
            tx_failed: 17,
            beacon_loss: 2,
        };
        assert_eq!(station, expected);
        let reading = station.reading();
        assert_eq!((reading.signal_dbm, reading.packets, reading.beacons_missed), (Some(-63), 51_000, 2));
        for len in 0..message.body.len() {
            let cut = Station::parse(&message.body[..len]);
            assert!(cut.is_none_or(|cut| cut.mac == station.mac));
        }
    }

    #[test]
    fn what_a_driver_leaves_out_is_missing() {
        let mut message = Request::new(0x22, 2, &[CMD_NEW_STATION, 1, 0, 0]);
        message.attribute(ATTR_MAC, &[1; 6]).nest(ATTR_STA_INFO, &[], |info| {
            info.nest(STA_INFO_TX_BITRATE, &[], |rate| {
                rate.attribute(RATE_INFO_BITRATE, &0_u16.to_ne_bytes());
            });
        });
        let bytes = message.finish(1);
        let station = Station::parse(&bytes[16..]).unwrap();
        assert_eq!(station, Station { mac: [1; 6], ..Station::default() });
        let other = Request::new(0x22, 2, &[20, 1, 0, 0]).finish(1);
        assert_eq!(Station::parse(&other[16..]), None, "a station that is gone");
    }

    #[test]
    fn a_kernel_without_wifi_says_so() {
        let Err(error) = Nl80211::open() else { return };
        assert!(error.is_missing(), "{error}");
    }
}
