//! Compiles the messages of the channel without a protoc binary, as the operator's build does.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../proto/channel.proto");
    let files = protox::compile(["channel.proto"], ["../proto"])?;
    prost_build::Config::new().compile_fds(files)?;
    Ok(())
}
