pub struct Content;
/// x
pub fn explain() {}
