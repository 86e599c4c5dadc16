//! An agent's report from the wire: whatever decodes leaves only possible readings, and an occupancy of 0 to 1 (M2, E1).
#![no_main]

use std::time::Duration;

use elastic_pool_engine::Share;
use elastic_pool_engine::forward::Forwards;
use elastic_pool_engine::occupancy::{Limits, Rates, Reading, history};
use elastic_pool_engine::report::Report;
use elastic_pool_engine::window::{Row, Window};
use libfuzzer_sys::fuzz_target;
use prost::Message;

#[path = "../../src/channel/convert.rs"]
mod convert;
#[allow(dead_code, clippy::all, reason = "generated, and more than a report")]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/elasticpool.channel.v1.rs"));
}

fuzz_target!(|data: &[u8]| {
    let Ok(message) = proto::Report::decode(data) else {
        return;
    };
    let (report, _) = Report::from(&message).sanitised();
    assert_eq!(report.sanitised(), (report, vec![]));
    let limits = Limits {
        memory_bytes: Some(1 << 29),
        cpu_cores: 0.5,
    };
    let mut window = Window::new(60, "a");
    let row = Row {
        at: Duration::from_secs(message.sequence),
        report,
        forward: Forwards::default(),
    };
    let _ = window.accept("a", message.sequence, row);
    let reading = Reading::of(&window, 6, &limits);
    assert!(reading.occupancy >= Share::ZERO && reading.occupancy <= Share::ONE);
    assert_eq!(history(&window, &limits).len(), 1);
    assert_eq!(Rates::of(&window), Rates::default());
});
