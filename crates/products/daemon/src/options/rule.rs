//! What an option is: its values, whose it is, and what becomes of it.

/// One of aria2's options.
#[derive(Clone, Copy, Debug)]
pub struct OptionRule {
    /// The name, without dashes.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// The default; `None` if answers leave the option out until it is given.
    pub default: Option<&'static str>,
    /// Whose option it is.
    pub scope: Scope,
    /// What becomes of it.
    pub fate: Fate,
}

/// The values that an option takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A number in this range.
    Int(u64, u64),
    /// A number of bytes, with `K` or `M` for 1,024 and 1,048,576.
    Size,
    /// Any text.
    Text,
    /// Any number of texts, each on a line of its own.
    Lines,
    /// A hash: `sha-256=HEX`.
    Checksum,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// Whose option it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A download has it. As a global option, it is the default of downloads that are added later.
    Job,
    /// Only a download has it.
    JobOnly,
    /// Only the daemon has it.
    Daemon,
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is obeyed.
    Obeyed,
    /// It is accepted, and has no effect.
    Idle,
    /// It is refused unless it has its default or is empty; the text says what to do instead.
    Refused(&'static str),
}

/// Why options are refused, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// A value that the option does not take, in aria2's words.
    #[error("We encountered a problem while processing the option '--{0}'.{1}")]
    Value(String, String),
    /// An option that would change what is fetched.
    #[error("The option '--{0}' is not supported here: {1}.")]
    Refused(&'static str, &'static str),
}

impl OptionRule {
    /// Checks a value, and returns it as answers show it: sizes without a unit.
    ///
    /// # Errors
    /// If the option does not take it.
    pub fn check(&self, value: &str) -> Result<String, OptionError> {
        let wrong = |why: &str| Err(OptionError::Value(self.name.to_owned(), why.to_owned()));
        match self.kind {
            Kind::Bool if !matches!(value, "true" | "false") => return wrong(""),
            Kind::Int(min, max) if !value.parse().is_ok_and(|number| (min..=max).contains(&number)) => {
                return wrong("");
            }
            Kind::Size => match size(value) {
                Some(bytes) => return Ok(bytes.to_string()),
                None => return wrong(""),
            },
            Kind::Word(words) if !words.contains(&value) => return wrong(""),
            Kind::Checksum => {
                let is_weak = ["md5=", "sha-1=", "sha-224=", "adler32="].iter().any(|k| value.starts_with(k));
                if is_weak {
                    return wrong(" Only sha-256, sha-384 and sha-512 are checked here.");
                }
                if value.parse::<anabranch::Checksum>().is_err() {
                    return wrong("");
                }
            }
            Kind::Text | Kind::Lines if value.contains('\0') => return wrong(""),
            _ => {}
        }
        match self.fate {
            Fate::Refused(instead) if !value.is_empty() && Some(value) != self.default => {
                Err(OptionError::Refused(self.name, instead))
            }
            _ => Ok(value.to_owned()),
        }
    }
}

/// Reads a number of bytes: digits, and perhaps `K` or `M`.
#[must_use]
pub fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 1 << 10),
        b'M' | b'm' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // aria2's numbers are signed.
    let bytes = digits.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(unit)?;
    i64::try_from(bytes).is_ok().then_some(bytes)
}
