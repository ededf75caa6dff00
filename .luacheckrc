std = "luajit"
max_line_length = 100
self = false
exclude_files = { "build", "runs" }
files["spec"] = { std = "+busted" }
files[".busted"] = { std = "luajit" }
