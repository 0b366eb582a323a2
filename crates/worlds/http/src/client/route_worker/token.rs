//! Fetches the tokens that servers ask for.

use std::time::Duration;

use hyper::http::response;
use tokio::time::timeout;

use super::{RequestState, RouteWorker};
use crate::client::bearer::{TOKEN_ANSWER_BYTES_MAX, TokenSource};
use crate::client::connect::Connection;
use crate::client::error::FetchError;
use crate::client::origin::{Url, authority};
use crate::client::request::{OriginalUrl, RequestShape};

impl RouteWorker {
    /// Returns where to fetch the token that an answer from `url` asks for. Returns `None` if the answer asks
    /// for none, or if the request for it carries the caller's own credentials.
    pub(super) fn token_source(
        &self,
        asked: OriginalUrl<'_>,
        url: &Url,
        parts: &response::Parts,
    ) -> Option<TokenSource> {
        let is_own = || self.settings.has_authorization(asked.url, asked.trusted, url);
        (parts.status == 401 && !is_own()).then(|| TokenSource::of(&parts.headers, url))?
    }

    /// Fetches a token for `url`, unless another fetch has brought it meanwhile.
    ///
    /// # Errors
    /// If the server of tokens cannot be reached, or gives none.
    pub(super) async fn fetch_token(&mut self, url: &Url, source: TokenSource) -> Result<(), FetchError> {
        let settings = self.settings.clone();
        let now = settings.clock.now();
        let refused = settings.tokens.get(url, now);
        if settings.tokens.need(url, &source, refused.as_ref(), now) {
            return Ok(());
        }
        // Its server gets none of the caller's secrets.
        let asked = OriginalUrl { url: &source.url, trusted: false };
        let shape = RequestShape::Whole { unless: None };
        let (parts, mut connection) = self.exchange(asked, &source.url, shape, RequestState::Unsent).await?;
        let by = authority(&source.url).to_owned();
        if !parts.status.is_success() {
            self.drain(connection).await;
            let status = parts.status.as_u16();
            return Err(FetchError::Refused(format!("{by} answers {status} instead of a token for it")));
        }
        let answer = token_answer(&mut connection, settings.idle_timeout).await;
        self.drain(connection).await;
        if answer.is_some_and(|answer| settings.tokens.take(source, &answer, now)) {
            return Ok(());
        }
        Err(FetchError::Refused(format!("{by} sends no token for it that can be read")))
    }
}

/// Reads the answer with a token. Returns `None` if it breaks off, takes longer than `wait`, or is too long.
async fn token_answer(connection: &mut Connection, wait: Duration) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    let read = async {
        while let Some(bytes) = connection.data().await.ok()? {
            if answer.len() + bytes.len() > TOKEN_ANSWER_BYTES_MAX {
                return None;
            }
            answer.extend_from_slice(&bytes);
        }
        Some(())
    };
    timeout(wait, read).await.ok()??;
    Some(answer)
}
