-- maxpool2d(x, kernel, stride, padding): the largest of each kernel x kernel window of x (N, C, H,
-- W); what is outside does not count. Saves a byte an output (four where kernel > 16).
return require("neap.op.pool")("maxpool2d")
