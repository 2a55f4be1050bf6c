"""BigQuery I/O for Apache Beam in Python: Storage Read and Write, exactly once on Flink."""
