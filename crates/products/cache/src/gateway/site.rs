//! Speaks with the HTTP server: paths in, bytes out.

use std::borrow::Cow;
use std::sync::Arc;

use anabranch_http::server::{
    CONNECTIONS_MAX, ContentProvider, PathLookup, Refusal, Resource, ResourceRequest, Unavailable,
};
use anabranch_net::prometheus::MEDIA_TYPE;

use super::desk::{Answer, Desk, Source, now_s};
use super::flight::Failure;
use crate::freshness::CacheFields;
use crate::preset::{Resolution, Target, TargetKind};

/// The field of an object that never changes.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// The same for one that only this client may have.
const FOR_ONE: &str = "private, max-age=31536000, immutable";
const JSON: &str = "application/json";

/// The contents of a cache, for the server.
pub(super) struct Site(pub(super) Arc<Desk>);

impl Site {
    /// Answers with the numbers of the cache, if the request is for one of their pages.
    fn numbers(&self, request: &ResourceRequest<'_>) -> Option<PathLookup<Source>> {
        let (text, media_type) = match request.path.encode().as_str() {
            "/status" => (self.0.json(), JSON),
            "/metrics" => (self.0.prometheus(), MEDIA_TYPE),
            _ => return None,
        };
        if let Err(refused) = request.must_be_own() {
            return Some(refused);
        }
        let fields = vec![("cache-control", "no-store".into())];
        let (length, content) = (text.len() as u64, Source::Text(text.into_bytes()));
        let (etag, links, media_type) = (None, Vec::new(), media_type.into());
        Some(PathLookup::Found(Resource { content, length, etag, media_type, links, fields }))
    }

    fn answer(&self, request: &ResourceRequest<'_>) -> Result<PathLookup<Source>, Failure> {
        let names = request.path.names.iter().map(|name| String::from_utf8(name.clone()));
        let names = names.collect::<Result<Vec<_>, _>>().ok();
        let nothing = || Failure::NotFound("no route of this cache has such a path".to_owned());
        let names = names.ok_or_else(nothing)?;
        let (route, depth, target) = self.0.target(&names, request).ok_or_else(nothing)?;
        if let (TargetKind::Document(document), false) = (target.kind.clone(), request.path.directory)
            && document.is_index
        {
            // Links of the page are relative to it.
            return Ok(PathLookup::Moved(format!("{}/", request.path.encode())));
        }
        let answer = self.0.answer(route, depth, &target).and_then(|answer| resource(answer, &target));
        match answer {
            Err(Failure::Forbidden(why)) if route.pass_credentials => {
                // A client that has sent none may have some.
                let refusal =
                    if target.credentials.is_some() { Refusal::Forbidden } else { Refusal::Unauthorized };
                Ok(PathLookup::Refused(refusal, why))
            }
            answer => answer.map(PathLookup::Found),
        }
    }
}

/// Returns the resource that the server sends as this answer. Waits until its length is known.
fn resource(answer: Answer, target: &Target) -> Result<Resource<Source>, Failure> {
    let length = match &answer.body {
        Source::Text(text) => text.len() as u64,
        Source::Object(object, _) => object.length(),
        Source::Flight(flight) => flight.length()?,
    };
    let mut fields: Vec<(&'static str, Cow<'static, str>)> =
        vec![("cache-status", format!("anabranch; {}", answer.how).into())];
    match (&target.kind, answer.fields) {
        (TargetKind::Object(_) | TargetKind::Unchanging, _) | (_, None) => {
            let value = if target.credentials.is_some() { FOR_ONE } else { FOR_EVER };
            fields.push(("cache-control", value.into()));
        }
        (_, Some(answered)) => {
            fields.push(("age", answered.age_s(now_s()).to_string().into()));
            let CacheFields { cache_control, last_modified, .. } = answered;
            let is_index = matches!(target.kind, TargetKind::Document(document) if document.is_index);
            // An index has two forms.
            let vary = is_index.then(|| "accept".to_owned());
            let all = [("cache-control", cache_control), ("last-modified", last_modified), ("vary", vary)];
            fields.extend(all.into_iter().filter_map(|(name, value)| Some((name, value?.into()))));
        }
    }
    for (name, value) in answer.further {
        // Only names that a preset knows are handed on.
        fields.extend(
            Resolution::FIELDS.iter().find(|known| **known == name).map(|name| (*name, value.into())),
        );
    }
    Ok(Resource {
        content: answer.body,
        length,
        etag: answer.tag.map(|tag| format!("\"{tag}\"")),
        media_type: answer.media_type.into(),
        links: answer.links,
        fields,
    })
}

impl ContentProvider for Site {
    type Content = Source;

    fn find(&self, request: &ResourceRequest<'_>) -> PathLookup<Source> {
        if let Some(numbers) = self.numbers(request) {
            return numbers;
        }
        self.answer(request).unwrap_or_else(|failure| {
            self.0.failed(&request.path.encode(), &failure);
            match failure {
                Failure::NotFound(why) => PathLookup::NotFound(why),
                Failure::Upstream(why) | Failure::WrongBytes(why) | Failure::Forbidden(why) => {
                    PathLookup::Refused(Refusal::BadGateway, why)
                }
                Failure::Busy(why) => PathLookup::Refused(Refusal::Busy, why),
                Failure::Store(why) => PathLookup::Refused(Refusal::InsufficientStorage, why),
            }
        })
    }

    fn check(&self, _: &Source) -> Result<(), Unavailable> {
        Ok(())
    }

    fn read(&self, content: &Source, offset: u64, out: &mut [u8]) -> Result<(), Unavailable> {
        match content {
            Source::Text(text) => {
                let bytes = usize::try_from(offset).ok().and_then(|from| text.get(from..)?.get(..out.len()));
                out.copy_from_slice(bytes.ok_or(Unavailable::Gone)?);
                Ok(())
            }
            Source::Object(object, sources) => {
                self.0.read_object(object, sources, offset, out).map_err(|_| Unavailable::Gone)
            }
            Source::Flight(flight) => flight.read_at(offset, out).map_err(|_| Unavailable::Gone),
        }
    }

    /// A read may wait for a source: each connection has a thread, so that none waits for another.
    fn threads_max(&self) -> usize {
        CONNECTIONS_MAX
    }
}
