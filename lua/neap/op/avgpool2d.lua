-- avgpool2d(x, kernel, stride, padding): the mean of each kernel x kernel window of x (N, C, H, W);
-- what is outside counts as 0. Saves nothing.
return require("neap.op.pool")("avgpool2d")
