mod char_lengths;
mod conform;
mod options;
mod partition;
mod rules;
mod writer;
