-- gru_cell(x_gates, h_gates, h): both gates (N, 3H) = r, z, n before their activations, h (N, H) ->
-- h' (N, H): r and z of the sums, n = tanh(x_n + r h_n), h' = n + z (h - n). Saves h, r, z, n, h_n.
return require("neap.op.apply").bind3("gru_cell")
