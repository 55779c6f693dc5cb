"""What stands around every script, in Lua: `redis`, the globals that Redis 7.0 leaves to scripts, errors, results.

`dispatch` asks the database for `redis.call` and `redis.pcall` and hands back a value as Lua is to see it. Tables are
cheaper to make here than there: `true` stands for the frequent {ok = 'OK'}, and behind a `nil` come the members of one.

`run` tells a result to Python in as few values as possible. A scalar is told as it is. Of a table there come: a tag
(see the constants below), a number, and that many values. Tables in tables are told one by one, by `tell`.

Scripts can't change the tables that they share, and see no global that they have not been given. A function that Lua
calls in place of its caller leaves no line behind, unlike one of C: where that hides the line of an error, 1 is told.
"""

LIST = 0
STATUS = 1
ERROR = 2
FAILURE = 3

SOURCE = f"""
function(dispatch, acl_check, sha1hex)
  local error, getinfo, loadstring, pcall, select = error, debug.getinfo, loadstring, pcall, select
  local setfenv, setmetatable, tostring, type, unpack, xpcall = setfenv, setmetatable, tostring, type, unpack, xpcall

  local function refuse()
    error('Attempt to modify a readonly table', 2)
  end

  local function readonly(table)
    return setmetatable({{}}, {{__index = table, __newindex = refuse}})
  end

  local redis = {{}}

  local function received(reply, ...)
    if reply == nil then
      return {{...}}
    elseif reply == true then
      return {{ok = 'OK'}}
    end
    return reply
  end

  function redis.call(...)
    local reply = received(dispatch(...))
    if type(reply) == 'table' and reply.err then
      error(reply)
    end
    return reply
  end

  function redis.pcall(...)
    return (received(dispatch(...)))
  end

  local function only_string(...)
    return select('#', ...) == 1 and type((...)) == 'string'
  end

  function redis.error_reply(...)
    if not only_string(...) then
      return {{err = 'ERR wrong number or type of arguments'}}
    end
    local text = string.match((...), '^%-?(%Z*)')
    return {{err = string.find(text, ' ', 1, true) and text or 'ERR ' .. text}}
  end

  function redis.status_reply(...)
    return only_string(...) and {{ok = (...)}} or {{err = 'ERR wrong number or type of arguments'}}
  end

  function redis.sha1hex(...)
    if select('#', ...) ~= 1 then
      error({{err = 'ERR wrong number of arguments'}})
    end
    return sha1hex(tostring((...)))
  end

  function redis.acl_check_cmd(...)
    local reply = acl_check(...)
    if type(reply) == 'table' then
      error(reply)
    end
    return reply
  end

  local globals = {{redis = readonly(redis), _VERSION = _VERSION}}
  for _, name in ipairs({{'string', 'table', 'math', 'coroutine'}}) do
    globals[name] = readonly(_G[name])
  end
  math.random, math.randomseed = nil, nil -- chance is not for scripts to have
  for _, name in ipairs({{'assert', 'error', 'getmetatable', 'ipairs', 'next', 'pairs', 'rawequal', 'rawget', 'rawset',
      'select', 'setmetatable', 'tonumber', 'tostring', 'type', 'unpack', 'xpcall'}}) do
    globals[name] = _G[name]
  end

  -- A script that catches an error of redis.call sees its text.
  local function caught(done, problem, ...)
    if not done and type(problem) == 'table' and type(problem.err) == 'string' then
      return false, problem.err
    end
    return done, problem, ...
  end

  function globals.pcall(...)
    return caught(pcall(...))
  end

  setmetatable(globals, {{__index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end}})
  local environment = readonly(globals)
  globals._G = environment

  local function compile(text)
    local script, problem = loadstring(text, '@user_script')
    if not script then
      return problem
    end
    return setfenv(script, environment)
  end

  local function explain(problem)
    if type(problem) ~= 'table' then
      problem = {{err = 'ERR ' .. tostring(problem)}}
    end
    local level, frame = 2, getinfo(2, 'Sl')
    while frame and frame.source ~= '@user_script' do
      level = level + 1
      frame = getinfo(level, 'Sl')
    end
    problem.line = frame and frame.currentline or 1
    return problem
  end

  local function tell(value)
    if type(value.err) == 'string' then
      return {ERROR}, 1, value.err
    elseif type(value.ok) == 'string' then
      return {STATUS}, 1, value.ok
    end
    local size = 0
    while value[size + 1] ~= nil do
      size = size + 1
    end
    return {LIST}, size, unpack(value, 1, size)
  end

  local function run(script, count, ...)
    local all = {{...}}
    globals.KEYS = {{unpack(all, 1, count)}}
    globals.ARGV = {{unpack(all, count + 1)}}
    local done, value = xpcall(script, explain)
    if not done then
      return {FAILURE}, value.line, value.err
    end
    local kind = type(value)
    if kind == 'table' then
      return tell(value)
    elseif kind == 'number' or kind == 'string' then
      return value
    end
    return value == true and 1 or nil
  end

  local function list(...)
    return {{...}}
  end

  local function field(name, value)
    return {{[name] = value}}
  end

  return compile, run, tell, list, field
end
"""
