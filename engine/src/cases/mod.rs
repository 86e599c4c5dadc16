//! Decision cases: reads one JSON line, asks the engine, gives the answer as JSON; no files, no printing.
