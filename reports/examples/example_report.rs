//! Writes the example run folder and its reports, to look at while working on panels:
//! `cargo run -p fencepost-reports --example example_report -- DIR`

#[path = "../tests/example/mod.rs"]
mod example;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os()
        .nth(1)
        .ok_or("give the folder to write to")?;
    let folder = std::path::PathBuf::from(folder);
    example::Example::kleppmann("L0").write(&folder);
    fencepost_reports::render(&folder)?;
    println!("{}", folder.join("report.html").display());
    Ok(())
}
