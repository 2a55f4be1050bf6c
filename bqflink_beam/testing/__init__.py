"""What a user's own tests import: the embedded BigQuery, and a clock they own."""
