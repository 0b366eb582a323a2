//! Decisions of a receiver that uses several WiFi access points (APs) at the same time.
//!
//! **Source.** Trilogy 2, Deliverable D3.3, section 2.2 ("MultiWifi"). A receiver associates with several APs
//! and has one subflow over each. The sender does not know how much airtime a packet costs at an AP; the
//! receiver sees the frames and knows. On one channel the APs take turns packet by packet, so an AP with a
//! long packet time slows all others down, and congestion control alone does not find out.
//!
//! ```text
//!  frames ──▶ FrameWindow ── delivery probability ──▶ Airtime ── PacketTime ─┬─▶ choose_aps: at most three
//!  (sequence number, retry bit)                     (bit rate, K, C, R)     └─▶ MarkingRule: share of the
//!                                                                               packets to mark (ECN), each
//! AP beacons ──▶ BeaconHandover ── the one AP to use, where only one association is possible
//!  packets ──▶ ChannelSlots ──── the channel to listen to, where the APs are on several channels
//! station statistics ──▶ FadeWatch ──── whether the link is about to fade
//! ```
//!
//! **Types.** [`Probability`] and [`PacketTime`] are fixed-point numbers: nothing here uses floating point.
//! APs are numbers that the caller gives out, from 0. Times are told by the caller.
//!
//! **What is refused.** Frames of unknown APs are ignored. A gap in the sequence numbers that is longer than
//! [`GAP_MAX`] is not taken for losses. An AP without a known packet time is neither preferred nor marked.

mod ap_choice;
mod beacon_handover;
mod channel_slots;
mod fade;
mod frame_window;
mod marking;
mod packet_time;
mod probability;
#[cfg(test)]
mod tests;

pub use ap_choice::{APS_USED_MAX, choose_aps};
pub use beacon_handover::{BEACONS_MAX, BeaconHandover, LEAD_BEACONS};
pub use channel_slots::{ChannelSlots, IDLE_MAX, SLOT, SlotRule};
pub use fade::{
    CALM, FadeCause, FadeWatch, REPEATS_CALM_PERCENT, REPEATS_MAX_PERCENT, Reading, STRONG_DBM, WEAK_DBM,
};
pub use frame_window::{APS_MAX, FRAMES_MAX, FrameCounts, FrameWindow, GAP_MAX};
pub use marking::{ApState, MarkingRule};
pub use packet_time::{Airtime, PacketTime, RETRIES_MAX};
pub use probability::Probability;
