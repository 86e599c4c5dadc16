//! The channel's messages as the engine's values; judges nothing.

use elastic_pool_engine::report::{Executor, Report};

use super::proto;

impl From<&proto::Report> for Report {
    /// As it came; the engine refuses what is impossible (M2).
    fn from(message: &proto::Report) -> Self {
        Self {
            users: message.users,
            pages: message.pages,
            connections: message.connections,
            active_users: message.active_users,
            executor: Executor {
                busy: message.executor_busy,
                total: message.executor_total,
                queue_depth: message.executor_queue_depth,
            },
            cpu: message.cpu,
            rss: message.rss,
            backlog_pending: message.backlog_pending,
            backlog_outbox: message.backlog_outbox,
            load: message.load,
        }
    }
}
