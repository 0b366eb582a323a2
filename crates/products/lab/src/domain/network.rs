//! What both worlds of the study run: links, and flows with the paths and groups that they have.

/// Size of a data packet on the wire, bytes.
pub const PACKET_BYTES: u16 = 1_500;

/// The rule by which the subflows of one group move their windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// One TCP (RFC 5681). Subflows do not know of each other.
    Reno,
    /// Normalised multipath congestion control (dissertation §4.2.2), with the threshold factor m_t.
    Nmcc,
    /// Linked increases (RFC 6356).
    Lia,
}

impl Rule {
    /// Its name, as `--cc` has it.
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
    /// Bits a second.
    pub rate_bits: u64,
    /// Propagation delay, nanoseconds.
    pub delay_ns: u64,
    /// What the queue holds at most, packets.
    pub queue_packets: u32,
}

impl Link {
    /// Data packets that it sends a second.
    #[must_use]
    pub fn packets_per_second(&self) -> f64 {
        self.rate_bits as f64 / (8.0 * f64::from(PACKET_BYTES))
    }
}

/// A path of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The links that data crosses, as indices of [`Network::links`]. Acknowledgements meet no queue.
    pub links: Vec<usize>,
    /// Subflows of one number are coupled.
    pub group: u32,
}

/// A flow without end, from one server to one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// How it moves the windows of each group.
    pub rule: Rule,
    /// Its paths, one subflow each.
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
    /// One-way propagation delay of a path, nanoseconds.
    #[must_use]
    pub fn delay_ns(&self, path: &Path) -> u64 {
        path.links.iter().map(|link| self.links[*link].delay_ns).sum()
    }

    /// The time from a packet to its acknowledgement where nothing is queued, seconds: propagation there and
    /// back, and the time that each link takes to send a packet.
    #[must_use]
    pub fn base_rtt_s(&self, path: &Path) -> f64 {
        let serialization: f64 =
            path.links.iter().map(|link| 1.0 / self.links[*link].packets_per_second()).sum();
        2e-9 * self.delay_ns(path) as f64 + serialization
    }
}
