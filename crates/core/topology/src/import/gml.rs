//! Reads GML (Himsolt, "GML: A portable Graph File Format", 1997). A file consists of keys with values, which
//! are numbers, texts in quotation marks, or lists in brackets. Unknown keys are skipped.

use super::{
    DEPTH_MAX, ImportError, ImportErrorKind, Raw, RawEdge, RawNode, capacity_bytes, degrees, expected,
};

/// The kind of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    File,
    Graph,
    Node,
    Edge,
    Other,
}

enum Token<'a> {
    Open,
    Close,
    Word(&'a str),
    Text(&'a str),
}

struct Tokens<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Tokens<'a> {
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.bytes().filter(|b| *b == b'\n').count();
        self.rest = rest;
        taken
    }

    fn next(&mut self) -> Result<Option<Token<'a>>, ImportErrorKind> {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.take(blank);
            if !self.rest.starts_with('#') {
                break;
            }
            let comment = self.rest.find('\n').unwrap_or(self.rest.len());
            self.take(comment);
        }
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        Ok(Some(match first {
            '[' => {
                self.take(1);
                Token::Open
            }
            ']' => {
                self.take(1);
                Token::Close
            }
            '"' => {
                self.take(1);
                let Some(end) = self.rest.find('"') else { return expected("a quotation mark", self.rest) };
                let text = self.take(end);
                self.take(1);
                Token::Text(text)
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || matches!(c, '[' | ']' | '"');
                let end = self.rest.find(ends).unwrap_or(self.rest.len());
                Token::Word(self.take(end))
            }
        }))
    }
}

pub(super) fn read(text: &str) -> Result<Raw, ImportError> {
    let mut tokens = Tokens { rest: text, line: 1 };
    let mut raw = Raw::default();
    statements(&mut tokens, &mut raw).map_err(|kind| ImportError { line: tokens.line, kind })?;
    Ok(raw)
}

fn statements(tokens: &mut Tokens<'_>, raw: &mut Raw) -> Result<(), ImportErrorKind> {
    let mut open = vec![List::File];
    let (mut node, mut edge) = (RawNode::default(), RawEdge::default());
    loop {
        let list = *open.last().unwrap_or(&List::File);
        let key = match tokens.next()? {
            None if list == List::File => return Ok(()),
            None => return expected("a closing bracket", "the end"),
            Some(Token::Word(key)) => key,
            Some(Token::Close) if list != List::File => {
                match list {
                    List::Node if node.id.is_empty() => return expected("the id of the node", "]"),
                    List::Node => raw.add_node(std::mem::take(&mut node))?,
                    List::Edge if edge.source.is_empty() || edge.target.is_empty() => {
                        return expected("source and target of the edge", "]");
                    }
                    List::Edge => raw.add_edge(std::mem::take(&mut edge))?,
                    _ => {}
                }
                open.pop();
                continue;
            }
            Some(Token::Close) => return expected("a key", "]"),
            Some(Token::Open) => return expected("a key", "["),
            Some(Token::Text(text)) => return expected("a key", text),
        };
        let value = match tokens.next()? {
            Some(Token::Open) => {
                if open.len() >= DEPTH_MAX {
                    return Err(ImportErrorKind::TooMany("lists within each other", DEPTH_MAX));
                }
                open.push(match (list, key) {
                    (List::File, "graph") => List::Graph,
                    (List::Graph, "node") => List::Node,
                    (List::Graph, "edge") => List::Edge,
                    _ => List::Other,
                });
                node.line = tokens.line;
                edge.line = tokens.line;
                continue;
            }
            Some(Token::Word(value)) => value,
            Some(Token::Text(value)) => value,
            Some(Token::Close) | None => return expected("a value", key),
        };
        match (list, key) {
            (List::Graph, "directed") => raw.directed = value == "1",
            (List::Graph, "label") => raw.name = unescape(value),
            (List::Node, "id") => value.clone_into(&mut node.id),
            (List::Node, "label") => node.label = unescape(value),
            (List::Node, "Latitude") => node.latitude = Some(degrees(value, 90.0)?),
            (List::Node, "Longitude") => node.longitude = Some(degrees(value, 180.0)?),
            (List::Edge, "source") => value.clone_into(&mut edge.source),
            (List::Edge, "target") => value.clone_into(&mut edge.target),
            (List::Edge, "LinkSpeedRaw") => match value.parse::<f64>() {
                Ok(bits) => edge.capacity_bytes = capacity_bytes(bits),
                Err(_) => return expected("bits a second", value),
            },
            _ => {}
        }
    }
}

/// Decodes the character references of GML, such as `&#228;` and `&amp;`. Other text stays as it is.
fn unescape(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let reference =
            rest.get(1..).and_then(|rest| rest.split_once(';')).filter(|(name, _)| name.len() <= 8);
        let char = reference.and_then(|(name, _)| match name {
            "amp" => Some('&'),
            "quot" => Some('"'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            _ => name.strip_prefix('#').and_then(|n| n.parse().ok()).and_then(char::from_u32),
        });
        match (char, reference) {
            (Some(char), Some((_, after))) => {
                out.push(char);
                rest = after;
            }
            _ => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}
