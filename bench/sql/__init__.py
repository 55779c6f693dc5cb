"""The SQL stores beside other libraries and bare drivers, on servers that the benchmarks start themselves."""
