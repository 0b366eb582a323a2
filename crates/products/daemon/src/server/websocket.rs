//! WebSockets (RFC 6455): calls come in, answers and notifications go out.

use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::answer::{Answer, empty, with};
use super::{REQUEST_BYTES_MAX, Shared};
use crate::rpc::notification;

/// The most bytes that wait for a client that does not read. It is cut off then.
const WRITE_BYTES_MAX: usize = 16 << 20;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Whether a request wants a WebSocket.
pub(super) fn is_wanted(request: &Request<Incoming>) -> bool {
    let value = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// Answers a request for a WebSocket, which lives on a task of its own.
pub(super) fn answer(
    shared: Arc<Shared>,
    mut request: Request<Incoming>,
    place: Arc<OwnedSemaphorePermit>,
) -> Answer {
    let headers = request.headers();
    let is_version = headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    let key = headers.get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let accept = key.filter(|_| is_version).and_then(|key| HeaderValue::try_from(key).ok());
    let Some(accept) = accept else {
        return with(empty(StatusCode::BAD_REQUEST), SEC_WEBSOCKET_VERSION, "13");
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        // The client is told nothing of an error: its connection is gone.
        let _ = serve(&shared, upgrade).await;
        drop(place);
    });
    let mut answer = empty(StatusCode::SWITCHING_PROTOCOLS);
    answer.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    with(with(answer, CONNECTION, "upgrade"), UPGRADE, "websocket")
}

async fn serve(shared: &Shared, upgrade: OnUpgrade) -> Result<(), Error> {
    let Ok(upgraded) = upgrade.await else { return Ok(()) };
    let config = WebSocketConfig::default()
        .max_message_size(Some(REQUEST_BYTES_MAX))
        .max_frame_size(Some(REQUEST_BYTES_MAX))
        .read_buffer_size(16 << 10)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_BYTES_MAX);
    let stream = TokioIo::new(upgraded);
    let mut socket: Socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let mut notices = shared.rpc.daemon().notices();
    let mut is_authorized = false;
    loop {
        tokio::select! {
            message = socket.next() => match message.transpose()? {
                None | Some(Message::Close(_)) => return Ok(()),
                Some(Message::Text(text)) => {
                    let reply = shared.answer(text.as_bytes()).await;
                    is_authorized |= reply.is_authorized;
                    socket.send(Message::text(reply.text)).await?;
                }
                Some(Message::Binary(bytes)) => {
                    let reply = shared.answer(&bytes).await;
                    is_authorized |= reply.is_authorized;
                    socket.send(Message::text(reply.text)).await?;
                }
                Some(_) => {}
            },
            notice = notices.recv() => match notice {
                Some((notice, gid)) if is_authorized => {
                    socket.send(Message::text(notification(notice, gid))).await?;
                }
                Some(_) => {}
                None => return Ok(()),
            },
        }
    }
}
