"""Systems: what answers queries. Each one fits a contract of `ragauge.seams`; nothing here counts or reports."""
