//! A saved group: it is refused with a sentence, or written again and answered to the same bytes.
#![no_main]

use elastic_pool_engine::snapshot::Saved;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(line) = std::str::from_utf8(data) else {
        return;
    };
    match Saved::parse(line) {
        Ok(saved) => {
            let written = saved.to_json();
            let again = Saved::parse(&written).expect("it reads what it writes");
            assert_eq!(again.to_json(), written);
            assert_eq!(again.answer().to_json(), saved.answer().to_json());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
