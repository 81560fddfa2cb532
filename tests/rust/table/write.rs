mod conform;
mod partition;
mod writer;
