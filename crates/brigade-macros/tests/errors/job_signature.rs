//! Jobs with a wrong signature.

use brigade_macros::job;

#[job]
async fn no_arguments(_ctx: u8) -> Result<(), u8> {
    Ok(())
}

#[job]
async fn no_result(_ctx: u8, _n: u32) -> u32 {
    1
}

#[job]
fn not_async(_ctx: u8, _n: u32) -> Result<(), u8> {
    Ok(())
}

#[job(nam = "x")]
async fn misspelt(_ctx: u8, _n: u32) -> Result<(), u8> {
    Ok(())
}

fn main() {}
