"""The package `object-store`: cassettes as objects, as S3 has them."""
