//! `anabranch kernel group`.

use std::net::IpAddr;

use anabranch_kernel::controllers;
use anabranch_kernel::groups::{self, GROUP_MAX, Group, GroupRule, Selector};

use super::args;
use super::{NamespaceArg, netns_option, wrong, wrong_here};
use crate::exit::{Failure, Outcome};
use crate::names::show;
use crate::stdout;

/// Parses the subject of a rule: an address, token:HEX, all connections, or an interface of this namespace.
fn selector(text: &str) -> Result<Selector, Failure> {
    if text == ALL {
        return Ok(Selector::All);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Selector::Address(ip));
    }
    if let Some(hex) = text.strip_prefix("token:") {
        let wrong =
            || Failure::usage(format!("`{text}` is no connection: token:HEX, as `kernel watch` shows it"));
        return u32::from_str_radix(hex, 16).map(Selector::Connection).map_err(|_| wrong());
    }
    let index = nix::net::if_::if_nametoindex(text);
    let missing =
        |_| Failure::usage(format!("`{text}` is neither an interface here nor an address nor token:HEX"));
    index.map(Selector::Interface).map_err(missing)
}

/// The word for [`Selector::All`] on the command line.
const ALL: &str = "all";

fn rule(text: &str) -> Result<(Selector, Group), Failure> {
    let form = || Failure::usage(format!("`{text}` is no rule: write WHAT=GROUP, such as wlan0=1"));
    let (what, group) = text.rsplit_once('=').ok_or_else(form)?;
    let selector = selector(what)?;
    let group = match group {
        "apart" if matches!(selector, Selector::Connection(_)) => Group::Apart,
        "apart" => {
            return Err(Failure::usage("only a connection's subflows can be `apart`: give others a number"));
        }
        number => match number.parse() {
            Ok(number) if number < GROUP_MAX => Group::Shared(number),
            _ => return Err(Failure::usage(format!("`{number}` is no group: a number below {GROUP_MAX}"))),
        },
    };
    Ok((selector, group))
}

fn name(selector: Selector) -> String {
    match selector {
        Selector::Address(ip) => ip.to_string(),
        Selector::Connection(token) => format!("token:{token:08x}"),
        Selector::All => ALL.into(),
        Selector::Interface(index) => {
            let name = nix::net::if_::if_indextoname(index).ok();
            let name = name.and_then(|name| name.into_string().ok());
            name.unwrap_or_else(|| format!("interface {index}"))
        }
    }
}

/// Sets, clears or lists rules.
pub(super) fn group(args: &args::Group) -> Outcome {
    let place = NamespaceArg::find(args.netns.as_deref())?;
    if let Err(e) = controllers::pins_last() {
        let netns = args.netns.as_ref().map_or_else(netns_option, |name| format!(" --netns {}", show(name)));
        let clear = if args.clear { " --clear" } else { "" };
        return Err(wrong_here(e, format!("group{netns}{clear} {}", args.rules.join(" ")).trim_end()));
    }
    place.run(|| {
        if args.clear {
            if args.rules.is_empty() {
                let here = groups::netns().map_err(wrong)?;
                let rules = groups::list().map_err(wrong)?;
                let mut here = rules.iter().filter(|rule| rule.netns == here);
                return here.try_for_each(|rule| groups::clear(rule.selector).map_err(wrong));
            }
            return args.rules.iter().try_for_each(|text| groups::clear(selector(text)?).map_err(wrong));
        }
        // All rules are read before the first one is set.
        let rules = args.rules.iter().map(|text| rule(text)).collect::<Result<Vec<_>, _>>()?;
        for (selector, group) in &rules {
            groups::set(*selector, *group).map_err(wrong)?;
        }
        if rules.is_empty() { list(args.json) } else { Ok(()) }
    })
}

fn list(json: bool) -> Outcome {
    let here = groups::netns().map_err(wrong)?;
    for GroupRule { netns, selector, group } in groups::list().map_err(wrong)? {
        if json {
            let group = group.to_string();
            stdout::line(
                serde_json::json!({ "netns": netns, "what": name(selector), "group": group }).to_string(),
            );
        } else if netns == here {
            stdout::line(format!("{}={group}", name(selector)));
        }
    }
    Ok(())
}
