//! Policy rules, which choose the routing table for a packet (`linux/fib_rules.h`, ip-rule(8)).

use std::fmt;
use std::net::IpAddr;

use super::message::{
    Attributes, INET, INET6, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, Request, ip, text, u32_at,
};
use super::{Error, MAIN_TABLE, Netlink, Result};

const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;
/// The size of `struct fib_rule_hdr`, in bytes.
const FIXED: usize = 12;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_PROTOCOL: u16 = 21;
/// `FR_ACT_TO_TBL`.
const TO_TABLE: u8 = 1;
const FIB_RULE_INVERT: u32 = 2;
const RTPROT_STATIC: u8 = 4;
/// The value by which the kernel says that no prefix length is suppressed.
const NONE: u32 = u32::MAX;

/// A policy rule: packets that match are looked up in a table. If that table has no route, the next rule is
/// tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether the rule is for IPv6 packets; otherwise it is for IPv4 packets.
    pub ipv6: bool,
    /// The position of the rule: the kernel tries the smallest number first. The rule of local addresses has
    /// 0, and the rule of the main table has 32766.
    pub priority: u32,
    /// Matches only packets from this prefix.
    pub from: Option<(IpAddr, u8)>,
    /// Matches only packets to this prefix.
    pub to: Option<(IpAddr, u8)>,
    /// Matches only packets that came in by this interface; `lo` stands for packets of this host.
    pub incoming: Option<String>,
    /// Matches only packets of sockets that are bound to this interface.
    pub outgoing: Option<String>,
    /// Matches only packets with this mark: the mark and its mask.
    pub mark: Option<(u32, u32)>,
    /// The table in which matching packets are looked up.
    pub table: u32,
    /// Ignores routes whose prefix has at most this many bits; with 0, default routes.
    pub suppress_prefix: Option<u32>,
    /// Whether the rule matches all packets except those described above.
    pub inverted: bool,
    /// The action for matching packets (`FR_ACT_*`): 1 is the lookup in `table`.
    pub action: u8,
    /// The origin of the rule (`RTPROT_*`): 2 kernel, 4 static.
    pub protocol: u8,
}

impl Rule {
    /// Returns a static rule that looks up packets from `ip` in `table`.
    #[must_use]
    pub const fn from_address(ip: IpAddr, table: u32, priority: u32) -> Self {
        Self {
            ipv6: ip.is_ipv6(),
            priority,
            from: Some((ip, if ip.is_ipv6() { 128 } else { 32 })),
            to: None,
            incoming: None,
            outgoing: None,
            mark: None,
            table,
            suppress_prefix: None,
            inverted: false,
            action: TO_TABLE,
            protocol: RTPROT_STATIC,
        }
    }

    /// Reads the body of an `RTM_NEWRULE` message.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let family = *body.first()?;
        if family != INET && family != INET6 {
            return None;
        }
        let (to_bits, from_bits) = (*body.get(1)?, *body.get(2)?);
        let mut rule = Self {
            ipv6: family == INET6,
            priority: 0,
            from: None,
            to: None,
            incoming: None,
            outgoing: None,
            mark: None,
            table: u32::from(*body.get(4)?),
            suppress_prefix: None,
            inverted: u32_at(body, 8)? & FIB_RULE_INVERT != 0,
            action: *body.get(7)?,
            protocol: 0,
        };
        let (mut mark, mut mask) = (0, None);
        for (kind, value) in Attributes::after(body, FIXED) {
            match kind {
                FRA_DST => rule.to = Some((ip(value)?, to_bits)),
                FRA_SRC => rule.from = Some((ip(value)?, from_bits)),
                FRA_IIFNAME => rule.incoming = Some(text(value)),
                FRA_OIFNAME => rule.outgoing = Some(text(value)),
                FRA_PRIORITY => rule.priority = u32_at(value, 0)?,
                FRA_TABLE => rule.table = u32_at(value, 0)?,
                FRA_FWMARK => mark = u32_at(value, 0)?,
                FRA_FWMASK => mask = Some(u32_at(value, 0)?),
                FRA_SUPPRESS_PREFIXLEN => rule.suppress_prefix = u32_at(value, 0).filter(|n| *n != NONE),
                FRA_PROTOCOL => rule.protocol = *value.first()?,
                _ => {}
            }
        }
        rule.mark = mask.filter(|mask| *mask > 0).map(|mask| (mark, mask));
        Some(rule)
    }

    fn request(&self, kind: u16, flags: u16) -> Request {
        let bits = |prefix: Option<(IpAddr, u8)>| prefix.map_or(0, |(_, bits)| bits);
        let mut fixed = [0; FIXED];
        fixed[0] = if self.ipv6 { INET6 } else { INET };
        (fixed[1], fixed[2], fixed[7]) = (bits(self.to), bits(self.from), self.action);
        let invert = if self.inverted { FIB_RULE_INVERT } else { 0 };
        fixed[8..].copy_from_slice(&invert.to_ne_bytes());
        let mut request = Request::new(kind, NLM_F_REQUEST | flags, &fixed);
        request.u32(FRA_PRIORITY, self.priority).u32(FRA_TABLE, self.table);
        for (kind, prefix) in [(FRA_DST, self.to), (FRA_SRC, self.from)] {
            if let Some((ip, _)) = prefix {
                request.ip(kind, ip);
            }
        }
        for (kind, name) in [(FRA_IIFNAME, &self.incoming), (FRA_OIFNAME, &self.outgoing)] {
            if let Some(name) = name {
                request.text(kind, name);
            }
        }
        if let Some((mark, mask)) = self.mark {
            request.u32(FRA_FWMARK, mark).u32(FRA_FWMASK, mask);
        }
        if let Some(bits) = self.suppress_prefix {
            request.u32(FRA_SUPPRESS_PREFIXLEN, bits);
        }
        request.attribute(FRA_PROTOCOL, &[self.protocol]);
        request
    }
}

/// Writes the rule as `ip rule` does.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(ip, bits): (IpAddr, u8)| if ip.is_ipv4() { bits == 32 } else { bits == 128 };
        write!(f, "{}:{} from ", self.priority, if self.inverted { " not" } else { "" })?;
        match self.from {
            Some((ip, _)) if self.from.is_some_and(whole) => write!(f, "{ip}")?,
            Some((ip, bits)) => write!(f, "{ip}/{bits}")?,
            None => f.write_str("all")?,
        }
        match self.to {
            Some((ip, _)) if self.to.is_some_and(whole) => write!(f, " to {ip}")?,
            Some((ip, bits)) => write!(f, " to {ip}/{bits}")?,
            None => {}
        }
        if let Some((mark, mask)) = self.mark {
            write!(f, " fwmark {mark:#x}/{mask:#x}")?;
        }
        if let Some(name) = &self.incoming {
            write!(f, " iif {name}")?;
        }
        if let Some(name) = &self.outgoing {
            write!(f, " oif {name}")?;
        }
        match (self.action, self.table) {
            (TO_TABLE, MAIN_TABLE) => f.write_str(" lookup main")?,
            (TO_TABLE, table) => write!(f, " lookup {table}")?,
            (action, _) => write!(f, " action {action}")?,
        }
        match self.suppress_prefix {
            Some(bits) => write!(f, " suppress_prefixlength {bits}"),
            None => Ok(()),
        }
    }
}

impl Netlink {
    /// Lists all rules, IPv4 and IPv6, in the kernel's order.
    ///
    /// # Errors
    /// If the kernel refuses; `EOPNOTSUPP` if the kernel has no policy routing.
    pub fn rules(&self) -> Result<Vec<Rule>> {
        let request = Request::new(RTM_GETRULE, NLM_F_REQUEST | NLM_F_DUMP, &[0; FIXED]);
        let all = self.socket.dump(&request, |m| (m.kind == RTM_NEWRULE).then(|| Rule::parse(m.body))?);
        all.map_err(|failure| Error::new("list the policy rules", failure))
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// `EEXIST` if the rule exists already, `EPERM`.
    pub fn add_rule(&self, rule: &Rule) -> Result<()> {
        let request = rule.request(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL);
        self.socket.change(request).map_err(|f| Error::new(format!("add the rule {rule}"), f))
    }

    /// Removes the rule that agrees with `rule`.
    ///
    /// # Errors
    /// `ENOENT` if there is no such rule, `EPERM`.
    pub fn del_rule(&self, rule: &Rule) -> Result<()> {
        let request = rule.request(RTM_DELRULE, 0);
        self.socket.change(request).map_err(|f| Error::new(format!("remove the rule {rule}"), f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_not() {
        let mut rule = Rule::from_address("10.0.0.2".parse().unwrap(), 26_227, 100);
        assert_eq!(rule.to_string(), "100: from 10.0.0.2 lookup 26227");
        rule.to = Some(("10.9.0.0".parse().unwrap(), 16));
        rule.suppress_prefix = Some(0);
        rule.mark = Some((1, 0xff));
        rule.incoming = Some("lo".into());
        let bytes = rule.request(RTM_NEWRULE, 0).finish(0);
        assert_eq!(Rule::parse(&bytes[16..]).as_ref(), Some(&rule));
        let shown =
            "100: from 10.0.0.2 to 10.9.0.0/16 fwmark 0x1/0xff iif lo lookup 26227 suppress_prefixlength 0";
        assert_eq!(rule.to_string(), shown);
        // The last attribute has one byte and three bytes of padding.
        for len in 0..bytes.len() - 16 - 3 {
            assert_ne!(Rule::parse(&bytes[16..16 + len]).as_ref(), Some(&rule));
        }
    }
}
