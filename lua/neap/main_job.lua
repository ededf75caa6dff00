-- The main job's model: what a config and its data say.
local M = {}

--- A GPT over the data's vocabulary.
---@param config neap.Config
---@param data neap.Data
---@return neap.Chain
function M.build(config, data)
  return require("neap").nn.GPT({ vocabulary = data.n_vocabulary, context = config.context,
    width = config.width, n_layer = config.n_layer, n_head = config.n_head,
    dropout = config.dropout })
end

return M
