# SPDX-License-Identifier: BSD-3-Clause
# fish completion for rdzv
set -l operations set get add cas check wait delete append keys num-keys mget mset
complete -c rdzv -f
complete -c rdzv -n __fish_use_subcommand -a serve -d 'serve a store to PyTorch and rdzv clients'
complete -c rdzv -n __fish_use_subcommand -a store -d 'use a store from the shell'
complete -c rdzv -n __fish_use_subcommand -l version -d 'print the version'
complete -c rdzv -l help -d 'print the options'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l bind -x -d 'address or name to listen on'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l port -x -d 'port; 0 picks a free one'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l port-file -r -F -d 'write the port there when ready'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l max-connections -x -d 'clients at once'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l max-key-bytes -x -d 'length of a key'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l max-value-bytes -x -d 'length of a value'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l max-keys -x -d 'keys in one request'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l max-memory -x -d 'keys, values and buffers together'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l request-timeout -x -d 'for a half-sent request'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l idle-timeout -x -d 'close clients that ask for nothing'
complete -c rdzv -n '__fish_seen_subcommand_from serve' -l log-level -x -a 'off error warning info debug'
complete -c rdzv -n '__fish_seen_subcommand_from store' -l endpoint -x -d 'server'
complete -c rdzv -n '__fish_seen_subcommand_from store' -l file -r -F -d 'a store in a file'
complete -c rdzv -n '__fish_seen_subcommand_from store' -l prefix -x -d 'use the keys P/K'
complete -c rdzv -n '__fish_seen_subcommand_from store' -l timeout -x -d 'for connecting and for waiting'
complete -c rdzv -n '__fish_seen_subcommand_from store' -l dialect -x -a 'auto v1 v2 rdzv'
complete -c rdzv -n '__fish_seen_subcommand_from store' -l json -d 'print JSON'
complete -c rdzv -n '__fish_seen_subcommand_from store' -l raw -d 'print a value without a line end'
complete -c rdzv -n "__fish_seen_subcommand_from store; and not __fish_seen_subcommand_from $operations" -a "$operations"
