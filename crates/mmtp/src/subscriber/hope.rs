//! Who may still bring what.

use super::{Event, ObjectId, SourceId, Subscriber};
use crate::wire::Reason;

impl Subscriber {
    /// Whether some source may still bring a content: not struck off, and has not refused it.
    #[must_use]
    pub fn has_hope(&self, object: ObjectId) -> bool {
        (0..self.sources.len()).any(|s| !self.sources[s].struck && !self.sources[s].lacks.contains(&object))
    }

    /// A content that is not complete and that no source can bring any more.
    #[must_use]
    pub fn hopeless(&self) -> Option<ObjectId> {
        self.active.iter().copied().find(|object| !self.has_hope(*object))
    }

    /// A source does not have a content, as its world found out; what it was lent must be given back.
    pub fn lacking(&mut self, source: SourceId, object: ObjectId) {
        let Some(entry) = self.sources.get_mut(usize::from(source)) else { return };
        if entry.lacks.insert(object) {
            self.events.push_back(Event::Refused { source, object, reason: Reason::Unknown });
        }
        self.dirty = true;
    }

    pub(super) fn lacks(&self, source: SourceId, object: ObjectId) -> bool {
        let source = &self.sources[usize::from(source)];
        source.struck || source.lacks.contains(&object)
    }
}
