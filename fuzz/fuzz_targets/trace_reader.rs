//! A trace of `simulate`: it is refused with a line and a sentence, or all of its rows are within their bounds.
#![no_main]

use std::time::Duration;

use elastic_pool_engine::Share;
use elastic_pool_engine::simulate::Trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| match Trace::parse(data) {
    Ok(trace) => {
        assert!(trace.rows.len() >= 2 && trace.step > Duration::ZERO);
        assert!(trace.span() >= trace.step);
        for row in &trace.rows {
            assert!(row.logins >= 0.0 && row.logins <= 1e6);
            assert!(row.cost >= Share::ZERO && row.cost <= Share::ONE);
            assert!(row.mean_stay >= Duration::from_secs(1));
        }
    }
    Err(error) => assert!(error.line > 0 && !error.problem.is_empty()),
});
