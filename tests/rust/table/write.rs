mod char_lengths;
mod conform;
mod partition;
mod rules;
mod writer;
