"""Pages and texts: reports and benches as HTML that opens without a network, and as Markdown."""
