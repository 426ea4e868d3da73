//! The dashboard: the files of the page, and the page in a browser.

mod api;
mod browser;
mod facts;
mod files;
mod numbers;
