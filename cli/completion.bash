
# An address holds brackets and quotes. cobra escapes a single candidate only. Of several, bash inserts the common
# prefix, which needs the escapes too. A comma needs none.
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
