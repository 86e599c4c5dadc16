//! What a task waits for beside its work: looked at only once it has happened, however often the task is polled; it runs in no task of its own.
//!
//! A future that is polled with its task costs something each time, even when nothing happened to it; a connection is polled twice a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

struct Bell {
    rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

/// Events out of `poll`, which is only called after it was woken; all polls come from one task.
pub(crate) struct Aside<P> {
    poll: P,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<T, P: FnMut(&mut Context<'_>) -> Poll<T>> Aside<P> {
    pub(crate) fn new(poll: P) -> Self {
        let bell = Arc::new(Bell {
            rung: AtomicBool::new(true),
            task: AtomicWaker::new(),
        });
        let waker = Waker::from(Arc::clone(&bell));
        Self { poll, bell, waker }
    }

    /// The next event.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<T> {
        if !self.bell.rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.bell.task.register(cx.waker());
        self.bell.rung.store(false, Ordering::Release);
        let polled = (self.poll)(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            // There may be more, of which nobody was told to tell.
            self.bell.rung.store(true, Ordering::Release);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn it_is_looked_at_after_each_event_and_not_in_between() {
        let (sender, mut receiver) = mpsc::channel(4);
        let mut looks = 0;
        let mut aside = Aside::new(|cx| {
            looks += 1;
            receiver.poll_recv(cx)
        });
        poll_fn(|cx| {
            for _ in 0..9 {
                assert!(aside.poll(cx).is_pending());
            }
            Poll::Ready(())
        })
        .await;
        for event in [1, 2] {
            sender.send(event).await.unwrap();
        }
        assert_eq!(poll_fn(|cx| aside.poll(cx)).await, Some(1));
        assert_eq!(poll_fn(|cx| aside.poll(cx)).await, Some(2));
        let woken = tokio::spawn(async move { sender.send(3).await });
        assert_eq!(poll_fn(|cx| aside.poll(cx)).await, Some(3));
        woken.await.unwrap().unwrap();
        drop(aside);
        assert!((4..=6).contains(&looks), "{looks}");
    }
}
