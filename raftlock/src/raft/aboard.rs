//! How followers learn what is committed: with the next entries, if these come soon.

use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use openraft::raft::AppendEntriesRequest;
use tokio::time::sleep;

use super::Types;

/// How long an append without entries is held back. Only a read at a follower would miss it, and there is none.
const LINGER: Duration = Duration::from_millis(5);

/// Leaves out appends without entries, which only tell how far is committed, where another follows within [`LINGER`]: it
/// tells that too, and its success is also theirs. A hand-over is then one message to each follower, not two.
pub fn with_commits_aboard<S>(input: S) -> impl Stream<Item = AppendEntriesRequest<Types>>
where
    S: Stream<Item = AppendEntriesRequest<Types>> + Unpin,
{
    // A stream must not be asked again once it has ended.
    stream::unfold(input.fuse(), |mut input| async move {
        let mut request = input.next().await?;
        let mut lingered = std::pin::pin!(sleep(LINGER));
        while request.entries.is_empty() {
            tokio::select! {
                biased;
                next = input.next() => match next {
                    Some(next) => request = next,
                    None => break,
                },
                () = &mut lingered => break,
            }
        }
        Some((request, input))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use openraft::entry::RaftEntry;
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;
    use crate::raft::{Entry, LogId, Vote};

    fn at(index: u64) -> LogId {
        LogId::new_term_index(1, index)
    }

    fn append(committed: u64, entry: Option<u64>) -> AppendEntriesRequest<Types> {
        AppendEntriesRequest {
            vote: Vote::new_committed(1, 1),
            prev_log_id: None,
            entries: entry
                .into_iter()
                .map(|index| Entry::new_blank(at(index)))
                .collect(),
            leader_commit: Some(at(committed)),
        }
    }

    fn told(request: &AppendEntriesRequest<Types>) -> (u64, usize) {
        (request.leader_commit.unwrap().index, request.entries.len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_goes_with_the_next_entries_or_alone_a_little_later() {
        let (tx, rx) = mpsc::unbounded_channel();
        let input = Box::pin(stream::unfold(rx, |mut rx| async move {
            let next = rx.recv().await?;
            Some((next, rx))
        }));
        let mut sent = Box::pin(with_commits_aboard(input));
        tx.send(append(1, None)).unwrap();
        tx.send(append(2, None)).unwrap();
        tx.send(append(2, Some(3))).unwrap();
        let begun = Instant::now();
        assert_eq!(told(&sent.next().await.unwrap()), (2, 1));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tx.send(append(3, None)).unwrap();
        assert_eq!(told(&sent.next().await.unwrap()), (3, 0));
        assert!(begun.elapsed() >= LINGER);
        tx.send(append(4, None)).unwrap();
        drop(tx);
        assert_eq!(
            told(&sent.next().await.unwrap()),
            (4, 0),
            "the last is not lost"
        );
        assert!(sent.next().await.is_none());
    }
}
