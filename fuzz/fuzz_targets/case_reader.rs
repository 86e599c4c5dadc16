//! A line of `decide`: it is refused with a sentence, or answered with one.
#![no_main]

use elastic_pool_engine::cases::Case;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(line) = std::str::from_utf8(data) else {
        return;
    };
    match Case::parse(line) {
        Ok(case) => {
            let answer = case.answer();
            assert!(answer.contains_key("name") && answer.contains_key("because"));
            let _ = case.check(&answer);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
