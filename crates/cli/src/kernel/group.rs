//! `anabranch kernel group`.

use std::net::IpAddr;

use ::kernel::groups::{self, GROUP_MAX, Group, Rule, Subject};

use super::args;
use super::{Place, wrong};
use crate::exit::{Failure, Outcome};

/// What a rule is about: an address, token:HEX, or an interface of this namespace.
fn subject(text: &str) -> Result<Subject, Failure> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Subject::Address(ip));
    }
    if let Some(hex) = text.strip_prefix("token:") {
        let wrong =
            || Failure::usage(format!("`{text}` is no connection: token:HEX, as `kernel watch` shows it"));
        return u32::from_str_radix(hex, 16).map(Subject::Connection).map_err(|_| wrong());
    }
    let index = nix::net::if_::if_nametoindex(text);
    let missing =
        |_| Failure::usage(format!("`{text}` is neither an interface here nor an address nor token:HEX"));
    index.map(Subject::Interface).map_err(missing)
}

fn rule(text: &str) -> Result<(Subject, Group), Failure> {
    let form = || Failure::usage(format!("`{text}` is no rule: write WHAT=GROUP, such as wlan0=1"));
    let (what, group) = text.rsplit_once('=').ok_or_else(form)?;
    let subject = subject(what)?;
    let group = match group {
        "apart" if matches!(subject, Subject::Connection(_)) => Group::Apart,
        "apart" => {
            return Err(Failure::usage("only a connection's subflows can be `apart`: give others a number"));
        }
        number => match number.parse() {
            Ok(number) if number < GROUP_MAX => Group::Shared(number),
            _ => return Err(Failure::usage(format!("`{number}` is no group: a number below {GROUP_MAX}"))),
        },
    };
    Ok((subject, group))
}

fn name(subject: Subject) -> String {
    match subject {
        Subject::Address(ip) => ip.to_string(),
        Subject::Connection(token) => format!("token:{token:08x}"),
        Subject::Interface(index) => {
            let name = nix::net::if_::if_indextoname(index).ok();
            let name = name.and_then(|name| name.into_string().ok());
            name.unwrap_or_else(|| format!("interface {index}"))
        }
    }
}

/// Sets, clears or lists rules.
pub(super) fn group(args: &args::Group) -> Outcome {
    Place::find(args.netns.as_deref())?.run(|| {
        if args.clear {
            if args.rules.is_empty() {
                let here = groups::netns().map_err(wrong)?;
                let rules = groups::list().map_err(wrong)?;
                let mut here = rules.iter().filter(|rule| rule.netns == here);
                return here.try_for_each(|rule| groups::clear(rule.subject).map_err(wrong));
            }
            return args.rules.iter().try_for_each(|text| groups::clear(subject(text)?).map_err(wrong));
        }
        // All are read before the first is set.
        let rules = args.rules.iter().map(|text| rule(text)).collect::<Result<Vec<_>, _>>()?;
        for (subject, group) in &rules {
            groups::set(*subject, *group).map_err(wrong)?;
        }
        if rules.is_empty() { list(args.json) } else { Ok(()) }
    })
}

fn list(json: bool) -> Outcome {
    let here = groups::netns().map_err(wrong)?;
    for Rule { netns, subject, group } in groups::list().map_err(wrong)? {
        if json {
            let group = group.to_string();
            println!("{}", serde_json::json!({ "netns": netns, "what": name(subject), "group": group }));
        } else if netns == here {
            println!("{}={group}", name(subject));
        }
    }
    Ok(())
}
