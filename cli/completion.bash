
# An address holds brackets and quotes. Of several words bash inserts what they have in common, which has to be escaped as a
# single one is. A comma need not be.
__muster_escaped()
{
    local i
    __start_muster "$@"
    for i in "${!COMPREPLY[@]}"; do
        if [[ ${COMPREPLY[i]} == *'["'* ]]; then
            printf -v "COMPREPLY[i]" '%q' "${COMPREPLY[i]}"
        fi
        COMPREPLY[i]=${COMPREPLY[i]//\\,/,}
    done
}

if [[ $(type -t compopt) = "builtin" ]]; then
    complete -o default -F __muster_escaped muster
fi
