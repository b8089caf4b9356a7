//! The connections of clients: accepted within their bound, served, and closed in order when the node stops.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::{Bytes, HttpBody};
use axum::http::Request;
use axum::serve::Listener;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::places::{Place, Places, Seat};

/// Serves clients, at most so many connections at once, until `stopping`; then lets the requests on the way end.
pub async fn serve_clients<L: Listener>(
    mut listener: L,
    router: Router,
    limit: usize,
    stopping: CancellationToken,
) {
    let places = Places::new(limit);
    let mut connections = JoinSet::new();
    loop {
        let (io, _) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopping.cancelled() => break,
            Some(_) = connections.join_next() => continue,
        };
        let Some((place, seat)) = places.enter() else {
            tracing::debug!("too many connections with requests; closed one more");
            continue;
        };
        let io = Placed { io, _place: place };
        connections.spawn(connection(io, seat, router.clone(), stopping.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection<T>(io: Placed<T>, seat: Arc<Seat>, router: Router, stopping: CancellationToken)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (router, seated) = (TowerToHyperService::new(router), Arc::clone(&seat));
    let service = service_fn(move |request: Request<Incoming>| {
        let arrived = Then::new(&seated, Seat::busy);
        let answering = router.call(request.map(|body| Until::new(body, arrived)));
        let answered = Then::new(&seated, Seat::idle);
        async move {
            let response = answering.await;
            response.map(|response| response.map(|body| Until::new(body, answered)))
        }
    });
    let http = http1::Builder::new().serve_connection(TokioIo::new(io), service);
    let mut http = pin!(http.with_upgrades());
    let ended = tokio::select! {
        ended = http.as_mut() => ended,
        () = seat.give_way.cancelled() => {
            tracing::debug!("too many connections; closed the one without a request for the longest time");
            return;
        }
        () = stopping.cancelled() => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection ended");
    }
}

/// What is done once, at the latest when this is dropped.
struct Then {
    seat: Option<Arc<Seat>>,
    what: fn(&Seat),
}

impl Then {
    fn new(seat: &Arc<Seat>, what: fn(&Seat)) -> Self {
        let seat = Some(Arc::clone(seat));
        Then { seat, what }
    }

    fn act(&mut self) {
        if let Some(seat) = self.seat.take() {
            (self.what)(&seat);
        }
    }
}

impl Drop for Then {
    fn drop(&mut self) {
        self.act();
    }
}

/// A body, and what is done when it is over.
struct Until<B> {
    body: B,
    then: Then,
}

impl<B: HttpBody> Until<B> {
    fn new(body: B, mut then: Then) -> Self {
        if body.is_end_stream() {
            then.act();
        }
        Until { body, then }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Until<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.then.act();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection with its place, which a stream takes along.
struct Placed<T> {
    io: T,
    _place: Place,
}

impl<T: AsyncRead + Unpin> AsyncRead for Placed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Placed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
