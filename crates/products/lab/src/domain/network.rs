//! Defines the networks of the study for both worlds: links, and flows with their paths and groups.

/// Size of a data packet on the wire, bytes.
pub const PACKET_BYTES: u16 = 1_500;

/// The rule by which the subflows of one group move their windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// One TCP (RFC 5681): subflows do not know of each other.
    Reno,
    /// Normalised multipath congestion control (dissertation §4.2.2), with the threshold factor m_t.
    Nmcc,
    /// Linked increases (RFC 6356).
    Lia,
}

impl Rule {
    /// Returns the name of the rule, as in `--cc`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Nmcc => "nmcc",
            Self::Lia => "lia",
        }
    }
}

/// One direction of a link with a drop-tail queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Rate, bits a second.
    pub rate_bits: u64,
    /// Propagation delay, nanoseconds.
    pub delay_ns: u64,
    /// Limit of the queue, packets.
    pub queue_packets: u32,
}

impl Link {
    /// Returns the data packets that the link sends a second.
    #[must_use]
    pub fn packets_per_second(&self) -> f64 {
        self.rate_bits as f64 / (8.0 * f64::from(PACKET_BYTES))
    }
}

/// A path of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Links that data crosses, as indices of [`Network::links`]. Acknowledgements meet no queue.
    pub links: Vec<usize>,
    /// Group of the subflow: subflows with equal numbers are coupled.
    pub group: u32,
}

/// A flow without end, from one server to one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Rule by which the windows of each group move.
    pub rule: Rule,
    /// Paths, with one subflow each.
    pub paths: Vec<Path>,
}

/// Links and the flows over them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// All links.
    pub links: Vec<Link>,
    /// All flows.
    pub flows: Vec<Flow>,
}

impl Network {
    /// Returns the one-way propagation delay of a path, nanoseconds.
    #[must_use]
    pub fn delay_ns(&self, path: &Path) -> u64 {
        path.links.iter().map(|link| self.links[*link].delay_ns).sum()
    }

    /// Returns the time from a packet to its acknowledgement without queues, seconds: propagation there and
    /// back, and the time that each link takes to send a packet.
    #[must_use]
    pub fn base_rtt_s(&self, path: &Path) -> f64 {
        let serialization: f64 =
            path.links.iter().map(|link| 1.0 / self.links[*link].packets_per_second()).sum();
        2e-9 * self.delay_ns(path) as f64 + serialization
    }
}
