//! Reads GraphML (Brandes et al., "GraphML Progress Report", GD 2001) as far as the Topology Zoo uses it:
//! keys that name data, and the nodes and edges of one graph. A document type is refused, so that no entity
//! can grow.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};

use super::{
    DEPTH_MAX, ITEMS_MAX, ImportError, ImportErrorKind, Raw, RawEdge, RawNode, capacity_bytes, degrees,
    expected, line_at, quoted,
};

/// The most bytes of text in an element that is read.
const DATA_MAX: usize = 4_096;

/// The kinds of elements that are understood.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Element {
    Document,
    Graph,
    Node,
    Edge,
    /// Data, with the name that its key stands for.
    Data(String),
    Other,
}

#[derive(Default)]
struct State {
    raw: Raw,
    /// The name that each key stands for.
    keys: BTreeMap<String, String>,
    open: Vec<Element>,
    text: String,
    node: RawNode,
    edge: RawEdge,
}

pub(super) fn read(text: &str) -> Result<Raw, ImportError> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut state = State::default();
    let line = |at: u64| line_at(text.as_bytes(), at as usize);
    let (mut lines, mut seen) = (1, 0);
    loop {
        let event = reader.read_event().map_err(|e| ImportError {
            line: line(reader.error_position()),
            kind: ImportErrorKind::Xml(quoted(&e.to_string())),
        })?;
        // Lines are counted along the way, because counting from the beginning for each of many elements
        // would be slow.
        let position = (reader.buffer_position() as usize).clamp(seen, text.len());
        lines += text.as_bytes()[seen..position].iter().filter(|b| **b == b'\n').count();
        seen = position;
        let step = match event {
            Event::Eof => break,
            Event::Start(start) => state.start(&start, lines),
            Event::End(_) => state.end(),
            Event::Text(text) => state.text(&text.xml10_content()),
            Event::CData(text) => state.text(&text.xml10_content()),
            Event::GeneralRef(entity) => {
                let char = match entity.is_char_ref() {
                    true => entity.resolve_char_ref().ok().flatten(),
                    false => resolve_predefined_entity(&entity).and_then(|text| text.chars().next()),
                };
                match char {
                    Some(char) => state.text(char.encode_utf8(&mut [0; 4])),
                    None => expected("one of XML's own entities", &entity),
                }
            }
            Event::DocType(_) => expected("no document type", "<!DOCTYPE"),
            _ => Ok(()),
        };
        step.map_err(|kind| ImportError { line: lines, kind })?;
    }
    if !state.open.is_empty() {
        let kind = ImportErrorKind::Xml("it ends within an element".into());
        return Err(ImportError { line: lines, kind });
    }
    Ok(state.raw)
}

impl State {
    fn start(&mut self, start: &BytesStart<'_>, line: usize) -> Result<(), ImportErrorKind> {
        if self.open.len() >= DEPTH_MAX {
            return Err(ImportErrorKind::TooMany("elements within each other", DEPTH_MAX));
        }
        let name = start.local_name();
        let element = match (self.open.last(), name.as_ref()) {
            (None, "graphml") => Element::Document,
            (None, other) => return expected("<graphml>", other),
            (Some(Element::Document), "key") => {
                if self.keys.len() >= ITEMS_MAX {
                    return Err(ImportErrorKind::TooMany("keys", ITEMS_MAX));
                }
                let (id, name) = (required(start, "id")?, attribute(start, "attr.name")?.unwrap_or_default());
                self.keys.insert(id, name);
                Element::Other
            }
            (Some(Element::Document), "graph") => {
                self.raw.directed = attribute(start, "edgedefault")?.as_deref() == Some("directed");
                Element::Graph
            }
            (Some(Element::Graph), "node") => {
                self.node = RawNode { id: required(start, "id")?, line, ..RawNode::default() };
                Element::Node
            }
            (Some(Element::Graph), "edge") => {
                let (source, target) = (required(start, "source")?, required(start, "target")?);
                self.edge = RawEdge { source, target, line, ..RawEdge::default() };
                Element::Edge
            }
            (Some(Element::Graph | Element::Node | Element::Edge), "data") => {
                self.text.clear();
                Element::Data(self.keys.get(&required(start, "key")?).cloned().unwrap_or_default())
            }
            _ => Element::Other,
        };
        self.open.push(element);
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), ImportErrorKind> {
        if matches!(self.open.last(), Some(Element::Data(_))) {
            if self.text.len() + text.len() > DATA_MAX {
                return Err(ImportErrorKind::TooMany("bytes of data", DATA_MAX));
            }
            self.text.push_str(text);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ImportErrorKind> {
        match self.open.pop() {
            Some(Element::Node) => self.raw.add_node(std::mem::take(&mut self.node)),
            Some(Element::Edge) => self.raw.add_edge(std::mem::take(&mut self.edge)),
            Some(Element::Data(key)) => self.data(&key),
            _ => Ok(()),
        }
    }

    fn data(&mut self, key: &str) -> Result<(), ImportErrorKind> {
        let value = self.text.trim();
        match (self.open.last(), key) {
            (Some(Element::Graph), "label" | "Network") => value.clone_into(&mut self.raw.name),
            (Some(Element::Node), "label") => value.clone_into(&mut self.node.label),
            (Some(Element::Node), "Latitude") => self.node.latitude = Some(degrees(value, 90.0)?),
            (Some(Element::Node), "Longitude") => self.node.longitude = Some(degrees(value, 180.0)?),
            (Some(Element::Edge), "LinkSpeedRaw") => match value.parse::<f64>() {
                Ok(bits) => self.edge.capacity_bytes = capacity_bytes(bits),
                Err(_) => return expected("bits a second", value),
            },
            _ => {}
        }
        Ok(())
    }
}

fn required(start: &BytesStart<'_>, name: &'static str) -> Result<String, ImportErrorKind> {
    match attribute(start, name)? {
        Some(value) => Ok(value),
        None => expected("an id, source, target or key", name),
    }
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Result<Option<String>, ImportErrorKind> {
    let bad = |why: String| ImportErrorKind::Xml(quoted(&why));
    let Some(found) = start.try_get_attribute(name).map_err(|e| bad(e.to_string()))? else { return Ok(None) };
    let value = found.normalized_value(quick_xml::XmlVersion::Explicit1_0).map_err(|e| bad(e.to_string()))?;
    Ok(Some(value.into_owned()))
}
